import { createHash } from 'node:crypto';
import { stat } from 'node:fs/promises';
import type { JsonObject } from '../../../base/json.ts';
import { type ModelFacts, modelFacts } from '../../../ggml/model-facts.ts';
import { reasoningFormatOfTemplate } from '../../../tools/formats.ts';
import type { OllamaModel, OllamaModelDetails } from './ollama-types.ts';

/** A model of this server. */
export interface ListedModel {
  readonly name: string;
  /** Of its file, or the first part of it. Absent: it is not on this machine. */
  readonly path?: string | undefined;
}

/** A model with what its file says. The file may be gone by now, or never have been one. */
export interface DescribedModel {
  readonly model: OllamaModel;
  readonly facts: ModelFacts | undefined;
}

/** `architecture`: of a loaded model, if its file says nothing. */
export async function describeModel({ name, path }: ListedModel, architecture = ''): Promise<DescribedModel> {
  const file = path === undefined ? undefined : await stat(path).catch(() => undefined);
  const facts = file === undefined ? undefined : await modelFacts(path!);
  const [size, modified] = [facts?.fileBytes ?? file?.size ?? 0, file?.mtime ?? new Date(0)];
  const model = {
    name,
    model: name,
    modified_at: modified.toISOString(),
    size,
    digest: createHash('sha256').update(`${path} ${size} ${modified.getTime()}`).digest('hex'),
    details: detailsOf(facts, architecture),
  };
  return { model, facts };
}

function detailsOf(facts: ModelFacts | undefined, architecture: string): OllamaModelDetails {
  const family = facts?.architecture ?? architecture;
  return {
    parent_model: '',
    format: 'gguf',
    family,
    families: family === '' ? [] : [family],
    parameter_size: facts === undefined ? '' : shortCount(facts.parameterCount),
    quantization_level: facts?.quantization ?? '',
  };
}

/** Ollama's form: `1.5B`, `494.03M`, `270K`. */
function shortCount(count: number): string {
  const inUnits = (unit: number, digits: number): string =>
    (count / unit).toFixed(Number.isInteger(count / unit) ? 0 : digits);
  if (count >= 1e9) return `${inUnits(1e9, 1)}B`;
  if (count >= 1e6) return `${inUnits(1e6, 2)}M`;
  return count >= 1000 ? `${inUnits(1000, 0)}K` : String(count);
}

const dayMs = 86_400_000;

/** A loaded model in `/api/ps`. The time of its end is not known. */
export const describeLoaded = (
  { model }: DescribedModel,
  loaded: { readonly size?: number; readonly size_vram: number; readonly context_length: number },
): object => ({ ...model, ...loaded, expires_at: new Date(Date.now() + dayMs).toISOString() });

/** What a server says of a model that it has loaded; by default, what its file says. */
export interface ServedModel {
  readonly maxModelLen: number;
  readonly chatTemplate: string;
  readonly capabilities: readonly string[];
}

/** The answer of `/api/show`. */
export function showModel({ model, facts }: DescribedModel, served?: ServedModel): object {
  const { 'general.name': _, 'tokenizer.chat_template': template, ...metadata } = facts?.metadata ?? {};
  const { family } = model.details;
  // Clients show the first to people, and take the other for the length of the context.
  const model_info: JsonObject = {
    'general.basename': model.name,
    ...(family === '' ? {} : { 'general.architecture': family }),
    ...metadata,
    ...(facts === undefined ? {} : { 'general.parameter_count': facts.parameterCount }),
    ...(served === undefined ? {} : { [`${family}.context_length`]: served.maxModelLen }),
  };
  return {
    modelfile: '',
    parameters: '',
    template: served?.chatTemplate ?? (typeof template === 'string' ? template : ''),
    details: model.details,
    model_info,
    ...(facts === undefined ? {} : { tensors: facts.tensors }),
    capabilities: served?.capabilities ?? (facts === undefined ? [] : capabilitiesOfFile(facts)),
    modified_at: model.modified_at,
  };
}

function capabilitiesOfFile({ architecture, metadata }: ModelFacts): string[] {
  const template = metadata['tokenizer.chat_template'];
  const pooling = metadata[`${architecture}.pooling_type`];
  const isPooled = typeof pooling === 'number' && pooling > 0;
  const hasGap = ['fim_pre', 'prefix'].some((name) => metadata[`tokenizer.ggml.${name}_token_id`] !== undefined);
  return [
    ...(isPooled ? [] : ['completion']),
    ...(template === undefined ? [] : ['tools']),
    ...(typeof template === 'string' && reasoningFormatOfTemplate(template) !== undefined ? ['thinking'] : []),
    ...(hasGap ? ['insert'] : []),
    ...(isPooled ? ['embedding'] : []),
  ];
}
