import { byEntries } from '../base/by-name.ts';
import { parameterReader } from '../core/parameter-reader.ts';
import type { SamplingOptions } from '../core/sampling.ts';
import type { ChatRequest } from '../engine/contract.ts';

/** `providerOptions.kvasir`: what the AI SDK's own settings cannot say. Names are those of the library. */
export interface KvasirProviderOptions
  extends Pick<
      SamplingOptions,
      'minP' | 'repetitionPenalty' | 'minTokens' | 'ignoreEos' | 'stopTokenIds' | 'logitBias' | 'includeStopStrInOutput'
    >,
    Pick<
      ChatRequest,
      | 'cacheSalt'
      | 'priority'
      | 'kvTransferParams'
      | 'parallelToolCalls'
      | 'variables'
      | 'toolFormat'
      | 'reasoningFormat'
    > {}

const samplingNames = [
  'minP',
  'repetitionPenalty',
  'minTokens',
  'ignoreEos',
  'stopTokenIds',
  'logitBias',
  'includeStopStrInOutput',
] as const satisfies readonly (keyof KvasirProviderOptions)[];
const requestNames = [
  'cacheSalt',
  'priority',
  'kvTransferParams',
  'parallelToolCalls',
  'variables',
  'toolFormat',
  'reasoningFormat',
] as const satisfies readonly (keyof KvasirProviderOptions)[];

export interface ReadProviderOptions {
  readonly params: SamplingOptions;
  readonly request: Omit<Partial<ChatRequest>, 'messages' | 'params'>;
}

export function readProviderOptions(given: unknown): ReadProviderOptions {
  const all = pickOptions(given, [...samplingNames, ...requestNames]);
  return { params: only(all, samplingNames), request: only(all, requestNames) };
}

/** The engine checks the values; here only the names, because a misspelt name would have no effect. */
export function pickOptions(given: unknown, names: readonly string[]): Record<string, unknown> {
  const whole = 'providerOptions.kvasir';
  const reader = parameterReader(given ?? {}, whole, `${whole}.`);
  const picked = only(byEntries(names.map((name) => [name, reader.raw(name)])), names);
  reader.finish();
  return picked;
}

const only = (given: Readonly<Record<string, unknown>>, names: readonly string[]): Record<string, unknown> =>
  byEntries(names.filter((name) => given[name] !== undefined).map((name) => [name, given[name]]));
