import { noGgufFiles, selectorAmbiguous, selectorUnknown } from './errors.ts';
import type { HubModel } from './model-name.ts';

/** A model of a repository: one GGUF file, or the parts of a split one in their order. */
export interface ModelFiles<F extends { readonly path: string }> {
  /** Its quantization if the name of the file has one, else the name without its ending. */
  readonly label: string;
  readonly files: readonly F[];
}

const partPattern = /-(\d{5})-of-(\d{5})(?=\.gguf$)/i;
/** Files beside models: projectors of images, and statistics for quantization. */
const notAModel = /(^|\/)(mmproj|imatrix)[^/]*\.gguf$/i;
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
    .map(([whole, found]) => ({ label: labelOf(whole), files: found.sort((a, b) => (a.path < b.path ? -1 : 1)) }))
    .filter(({ files: found }) => isWhole(found.map(({ path }) => path)));
}

/** @throws noGgufFiles (`hint`: a sentence behind a space, or nothing), selectorUnknown, selectorAmbiguous */
export function selectModel<F extends { readonly path: string }>(
  { repository, selector }: HubModel,
  models: readonly ModelFiles<F>[],
  hint = '',
): ModelFiles<F> {
  if (models.length === 0) throw noGgufFiles({ repository, hint });
  const found = selector === undefined ? defaultAmong(models) : models.filter((model) => isSelected(model, selector));
  const [first] = found;
  if (first !== undefined && found.length === 1) return first;
  if (first === undefined) {
    const known = models.map(({ label }) => label);
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

function defaultAmong<F extends { readonly path: string }>(models: readonly ModelFiles<F>[]): readonly ModelFiles<F>[] {
  if (models.length === 1) return models;
  for (const label of defaults) {
    const found = models.filter((model) => model.label.toUpperCase() === label);
    if (found.length > 0) return found;
  }
  return models;
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

function labelOf(path: string): string {
  const name = path.slice(path.lastIndexOf('/') + 1).replace(/\.gguf$/i, '');
  return [...name.matchAll(quantizationPattern)].at(-1)?.[1]?.toUpperCase() ?? name;
}

function isWhole(paths: readonly string[]): boolean {
  const match = partPattern.exec(paths[0]!);
  return match === null ? paths.length === 1 : paths.length === Number(match[2]);
}
