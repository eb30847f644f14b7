import type { KvCacheSpec } from '../src/core/kv-spec.ts';
import type { EngineRequest, FinishReason } from '../src/core/request.ts';
import { entryOf, firstRead, hiddenAfter, hiddenSeed, mix, nextTokenOf } from './fake-model.ts';

export interface ReferenceOutput {
  readonly tokens: readonly number[];
  readonly reason: FinishReason;
  /** By rank and group, the KV of all tokens but the last: the KV that the request must read (I1). */
  readonly entries: readonly (readonly Int32Array[])[];
  /** Of each prompt position: the value from which the next token follows. */
  readonly promptValues: Int32Array;
}

/** The naive engine: one request, no blocks, no cache, no batch, no scheduler. The scheduler's output must equal it (I2). */
// biome-ignore lint/complexity/useMaxParams: the last one is optional
export function referenceOutput(
  request: EngineRequest,
  spec: KvCacheSpec,
  vocabSize: number,
  maxModelLen: number,
  rankCount = 1,
): ReferenceOutput {
  const { params } = request;
  const tokens = Array.from(request.promptTokens);
  const entries = Array.from({ length: rankCount }, () =>
    spec.groups.map(() => new Int32Array(tokens.length + params.maxTokens)),
  );
  const promptValues = new Int32Array(tokens.length);
  const output: number[] = [];
  const stops = [...(params.ignoreEos ? [] : request.eosTokenIds), ...params.stopTokenIds] as number[];
  for (let position = 0; ; position++) {
    let out = 0;
    for (let rank = 0; rank < rankCount; rank++) {
      const hidden = rank === 0 ? hiddenSeed(tokens[position]!, position) : hiddenAfter(out, rank);
      out = computeToken(spec, entries[rank]!, position, hidden);
    }
    if (position < promptValues.length) promptValues[position] = out;
    if (position < tokens.length - 1) continue;
    if (params.maxTokens === 0) return { tokens: output, reason: 'length', entries, promptValues };
    const token = nextTokenOf(out, vocabSize);
    tokens.push(token);
    output.push(token);
    if (output.length >= params.minTokens && stops.includes(token))
      return { tokens: output, reason: 'stop', entries, promptValues };
    if (output.length >= params.maxTokens || tokens.length >= maxModelLen)
      return { tokens: output, reason: 'length', entries, promptValues };
  }
}

/** Writes the entries of the token at `position`, which begins with `hidden`. Returns the output. */
function computeToken(
  { groups }: KvCacheSpec,
  entries: readonly Int32Array[],
  position: number,
  hidden: number,
): number {
  let value = hidden;
  for (let group = 0; group < groups.length; group++) {
    let read = group;
    const seen = entries[group]!;
    for (let q = firstRead(groups[group]!, position); q < position; q++) read = mix(read, seen[q]!);
    value = mix(value, read);
  }
  let output = value;
  for (let group = 0; group < groups.length; group++) {
    entries[group]![position] = entryOf(value, group);
    output = mix(output, entries[group]![position]!);
  }
  return output;
}
