import { noGgufFiles, selectorAmbiguous, selectorUnknown } from './errors.ts';
import type { HubModel } from './model-name.ts';

/** A model of a repository: one GGUF file, or the parts of a split one in their order. */
export interface ModelFiles<F extends { readonly path: string }> {
  /** Its quantization if the name of the file has one, else the name without its ending, as for companions. */
  readonly label: string;
  /** As `label`, for companions too. */
  readonly quantization: string;
  /** A file for use beside a model, such as one that drafts. */
  readonly isCompanion: boolean;
  readonly files: readonly F[];
}

const partPattern = /-(\d{5})-of-(\d{5})(?=\.gguf$)/i;
/** Files beside models: projectors of images, and statistics for quantization. */
const notAModel = /(mmproj[^/]*|(^|\/)imatrix[^/]*|[-._]imatrix)\.gguf$/i;
/**
 * Layers that predict and models that draft, as llama.cpp names them. Some publishers also write `imatrix` or `MTP` into the names
 * of models, so a companion is a model if it is named, or if the repository has nothing else.
 */
const companionPattern = /(^|[-._/])(mtp|eagle3|dflash|dspark|draft|drafter|imatrix)[-._][^/]*$/i;
const quantizationPattern = /(?:^|[-._/])((?:UD-)?(?:I?Q\d\w*|TQ\d_\d|BF16|F16|F32|MXFP4(?:_MOE)?))(?=[-._/]|$)/gi;
/** What most users want first: small, and good enough. */
const defaults = ['Q4_K_M', 'Q8_0', 'Q4_0', 'MXFP4', 'MXFP4_MOE', 'Q5_K_M', 'Q6_K', 'F16', 'BF16'];

/** The models among the files. A split model without all of its parts is left out. */
export function modelsAmong<F extends { readonly path: string }>(files: readonly F[]): ModelFiles<F>[] {
  const parts = new Map<string, F[]>();
  for (const file of files) {
    if (!/\.gguf$/i.test(file.path) || notAModel.test(file.path)) continue;
    const whole = file.path.replace(partPattern, '');
    parts.set(whole, [...(parts.get(whole) ?? []), file]);
  }
  return [...parts]
    .map(([whole, found]) => ({ ...labelsOf(whole), files: found.sort((a, b) => (a.path < b.path ? -1 : 1)) }))
    .filter(({ files: found }) => isWhole(found.map(({ path }) => path)));
}

/** @throws noGgufFiles (`hint`: a sentence behind a space, or nothing), selectorUnknown, selectorAmbiguous */
export function selectModel<F extends { readonly path: string }>(
  { repository, selector }: HubModel,
  models: readonly ModelFiles<F>[],
  hint = '',
): ModelFiles<F> {
  if (models.length === 0) throw noGgufFiles({ repository, hint });
  const found = selector === undefined ? defaultAmong(models) : selectedAmong(models, selector);
  const [first] = found;
  if (first !== undefined && found.length === 1) return first;
  if (first === undefined) {
    const known = ownModels(models).map(({ label }) => label);
    throw selectorUnknown({ repository, selector, known: known.join(', '), example: known[0] });
  }
  const known = found.map(({ files }) => files[0]!.path);
  throw selectorAmbiguous({
    repository,
    selector: selector ?? 'no selector',
    known: known.join(', '),
    example: known[0],
  });
}

type Models<F extends { readonly path: string }> = readonly ModelFiles<F>[];

/** Without companions, unless there is nothing else. */
function ownModels<F extends { readonly path: string }>(models: Models<F>): Models<F> {
  const own = models.filter(({ isCompanion }) => !isCompanion);
  return own.length > 0 ? own : models;
}

function defaultAmong<F extends { readonly path: string }>(models: Models<F>): Models<F> {
  const own = ownModels(models);
  if (own.length === 1) return own;
  for (const label of defaults) {
    const found = own.filter(({ quantization }) => quantization.toUpperCase() === label);
    if (found.length > 0) return found;
  }
  return own;
}

function selectedAmong<F extends { readonly path: string }>(models: Models<F>, selector: string): Models<F> {
  const found = models.filter((model) => isSelected(model, selector));
  if (found.length > 0) return found;
  return ownModels(models).filter(({ quantization }) => quantization.toLowerCase() === selector.toLowerCase());
}

/** Whether a selector means the model: by its label, or by the name of a file. Upper and lower case are equal. */
export function isSelected({ label, files }: ModelFiles<{ readonly path: string }>, given: string): boolean {
  const selector = given.toLowerCase();
  return (
    label.toLowerCase() === selector ||
    files.some(({ path }) => {
      const names = [path, path.slice(path.lastIndexOf('/') + 1)].map((name) => name.toLowerCase());
      return names.some((name) => name === selector || name === `${selector}.gguf`);
    })
  );
}

function labelsOf(path: string): Pick<ModelFiles<never>, 'label' | 'quantization' | 'isCompanion'> {
  const name = path.slice(path.lastIndexOf('/') + 1).replace(/\.gguf$/i, '');
  const quantization = [...name.matchAll(quantizationPattern)].at(-1)?.[1]?.toUpperCase() ?? name;
  const isCompanion = companionPattern.test(path);
  return { label: isCompanion ? name : quantization, quantization, isCompanion };
}

function isWhole(paths: readonly string[]): boolean {
  const match = partPattern.exec(paths[0]!);
  return match === null ? paths.length === 1 : paths.length === Number(match[2]);
}
