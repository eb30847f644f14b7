import { assert, assertDefined } from '../base/assert.ts';
import type { JsonObject } from '../base/json.ts';
import type { BlockId, TokenCount, TokenId } from '../core/ids.ts';
import { InvalidBlocks } from '../core/invalid-blocks.ts';
import type { RequestUpdate } from '../core/request.ts';
import {
  hasMoreLayers,
  type Sample,
  type SampledToken,
  type SequenceFailure,
  type StepPlan,
  type StepResult,
  spansOfTokens,
} from '../core/step.ts';
import type { KvCache } from '../kv/kv-cache.ts';
import type { ExecutedStep } from './contract.ts';
import type { RequestState } from './request-state.ts';
import type { Speculator } from './speculation/speculator.ts';

/** The plan of the step in flight, and the requests of its sequences. */
export interface StepInFlight {
  readonly plan: StepPlan;
  /** Parallel to the plan's sequences. */
  readonly states: readonly RequestState[];
  /** Parallel to `states`, written by `commitStep`: the first token that depends on an invalid block; Infinity if none does. */
  readonly valid: number[];
}

/**
 * The KV of the scheduled tokens becomes valid: full blocks are cached, and counters are updated. Tokens that depend on
 * an invalid block do not count, nor do tokens of which a later step computes more layers. Writes `valid`.
 *
 * Nor do tokens of a sequence that failed, and of others that read its blocks: a GPU may have spread NaN to the KV of tokens before
 * the one that caused it.
 *
 * Requests that were aborted meanwhile are committed too: their KV is valid and can be cached.
 */
export function commitStep(
  kv: KvCache,
  { plan, states, valid }: StepInFlight,
  invalid: readonly BlockId[],
  { leftOut = nothing, partlyComputed = nothing, failures }: ExecutedStep,
): void {
  const allTokensCount = invalid.length === 0 && leftOut.length === 0 && failures === undefined;
  const blocks = allTokensCount ? undefined : new InvalidBlocks(kv.parts.spec, invalid);
  for (let i = 0; i < states.length; i++) {
    const state = states[i]!;
    const sequence = plan.sequences[i]!;
    state.inFlight = false;
    const wasLeftOut = leftOut.includes(i);
    const spans = spansOfTokens(sequence, state.tokens.length);
    const isPartly = hasMoreLayers(sequence, kv.parts.spec);
    if (!wasLeftOut && !isPartly) state.computed(spans);
    const { start } = sequence.spans[0]!;
    let below = Infinity;
    if (blocks !== undefined) below = wasLeftOut ? start : blocks.firstDependentToken(sequence);
    valid[i] = below;
    if (failures !== undefined && failureOf(failures, i) !== undefined) below = start;
    if (blocks !== undefined && below !== Infinity) {
      blocks.addBlocksFrom(below, sequence);
      kv.replanRequestsAwaiting(blocks);
    }
    // Drafts are not tokens yet: if only their rows depend on an invalid block, all tokens count.
    const belowTokens = below < state.tokens.length ? below : Infinity;
    if (isPartly || (wasLeftOut && !partlyComputed.includes(i))) kv.dropTokens(state.kv, spans);
    else kv.commitTokens(state.kv, spans, belowTokens);
  }
}

export interface AppendOptions {
  /** The array of the last step, which is written again. */
  readonly updates: RequestUpdate[];
  readonly maxModelLen: number;
  readonly ends: RequestEnds;
  /** Undefined: times are not measured. */
  readonly nowMs: number | undefined;
  readonly speculator: Speculator | undefined;
}

export interface RequestEnds {
  /** Ends a request: releases its blocks and informs the connector. Returns the connector's answer to the client. */
  finish(state: RequestState): { readonly kvTransferParams?: JsonObject } | undefined;
  /** Releases the blocks of a request that was aborted while the step was in flight. */
  close(state: RequestState): void;
}

/**
 * Appends the sampled tokens and ends requests. Writes one update for each request that got a token or ended. Most updates are
 * the same objects at each step (`RequestState.update`).
 */
export function appendSamples(
  kv: KvCache,
  inFlight: StepInFlight,
  result: ExecutedStep,
  { updates, maxModelLen, ends, nowMs, speculator }: AppendOptions,
): void {
  const { plan, states, valid } = inFlight;
  let count = 0;
  for (let i = 0; i < states.length; i++) {
    const state = states[i]!;
    if (state.status !== 'running') {
      if (state.kv.isOpen) ends.close(state);
      continue;
    }
    const sequence = plan.sequences[i]!;
    const { length } = state.tokens;
    const areTokensValid = valid[i]! >= length;
    // The failure of a sequence that was left out does not come from invalid KV.
    const mayFail = result.failures !== undefined && (areTokensValid || result.leftOut?.includes(i) === true);
    const failure = mayFail ? failureOf(result.failures!, i) : undefined;
    if (failure !== undefined) {
      const finish = { reason: 'error', error: failure.error, ...ends.finish(state) } as const;
      state.newTokens.length = 0;
      updates[count++] = { ...state.update(), finish };
      continue;
    }
    const prompt = sequence.prompt === undefined ? undefined : takePrompt(kv, inFlight, i, result);
    const end = sequence.spans[sequence.spans.length - 1]!.end;
    const isComplete = areTokensValid && end >= length;
    let finish: RequestUpdate['finish'];
    if (isComplete && sequence.sample !== undefined)
      finish = appendTokens(state, result.sampled[i], maxModelLen, Math.min(valid[i]!, end) - length + 1);
    else state.newTokens.length = 0;
    if (isComplete && sequence.sample === undefined) finish = finishOf(state, undefined, maxModelLen);
    const { newTokens } = state;
    if (sequence.drafts !== undefined) {
      keepDrafts(kv, state, length, sequence.drafts.tokens.length);
      speculator?.verified(state, sequence.drafts.tokens, newTokens);
    }
    if (!isComplete && prompt === undefined) continue;
    if (newTokens.length > 0) state.recovered(nowMs);
    const ended = finish && { ...finish, ...ends.finish(state) };
    if (newTokens.length > 0 && finish === undefined) kv.tokenAppended(state.kv);
    let update = state.update();
    if (ended !== undefined) update = { ...update, finish: ended };
    if (prompt !== undefined) update = { ...update, prompt };
    updates[count++] = update;
  }
  if (updates.length !== count) updates.length = count;
}

/** Not in the loop, and called only with failures: the closure would allocate memory for each request. */
const failureOf = (failures: readonly SequenceFailure[], sequence: number): SequenceFailure | undefined =>
  failures.find((failed) => failed.sequence === sequence);

/**
 * Appends the sampled tokens one after the other, at most `countMax` of them, as if each came from a step of its own: the
 * first that ends the request is the last. Writes `state.newTokens`.
 */
function appendTokens(
  state: RequestState,
  sample: Sample | undefined,
  maxModelLen: number,
  countMax: number,
): RequestUpdate['finish'] {
  assert(sample !== undefined, `no sample for request ${state.request.id}`);
  const { newTokens } = state;
  const { further = nothing } = sample;
  let next: SampledToken = further.length === 0 ? sample : withoutFurther(sample);
  let count = 0;
  let finish: RequestUpdate['finish'];
  for (;;) {
    state.append(next.token);
    // Not emptied and filled again: an empty array would allocate memory at each token.
    newTokens[count++] = next;
    finish = finishOf(state, next.token, maxModelLen);
    if (finish !== undefined || count > further.length || count >= countMax) break;
    next = further[count - 1]!;
  }
  if (newTokens.length !== count) newTokens.length = count;
  return finish;
}

const withoutFurther = ({ further: _, ...first }: Sample): SampledToken => first;

/** `length`: the tokens before this step. Each further token but the last is an accepted draft, whose KV is valid. */
function keepDrafts(kv: KvCache, state: RequestState, length: number, drafted: number): void {
  const end = Math.max(state.tokens.length - 1, length);
  kv.keepDrafts(state.kv, length, end);
  state.drafted(drafted, end - length);
  if (end > length) state.computed([{ start: length as TokenCount, end: end as TokenCount }]);
}

/** The results of prompt positions in this step. From the next position on, all tokens must still be computed. */
function takePrompt(
  kv: KvCache,
  { plan, states, valid }: StepInFlight,
  i: number,
  result: StepResult,
): RequestUpdate['prompt'] {
  const { promptOutput, kv: request } = states[i]!;
  const rows = assertDefined(plan.sequences[i]!.prompt, 'the step has rows of the prompt');
  const output = assertDefined(promptOutput, 'the request asks for results of its prompt');
  const ofRows = result.prompts?.find(({ sequence }) => sequence === i);
  const prompt = output.take(rows, ofRows, valid[i]!);
  kv.computeFrom(request, output.computeFrom);
  return prompt;
}

const nothing: readonly never[] = [];

/** Whether the last token ends the request. The engine checks stop *strings*, because the scheduler has no text. */
function finishOf(state: RequestState, token: TokenId | undefined, maxModelLen: number): RequestUpdate['finish'] {
  const { params, eosTokenIds, constraint } = state.request;
  // With `maxTokens` 0, the request asks for results of its prompt only.
  if (token === undefined) return { reason: 'length' };
  // The sampler gives an EOS token only where the grammar ends. `minTokens` and `ignoreEos` cannot continue a grammar.
  if (constraint !== undefined && eosTokenIds.includes(token)) return { reason: 'stop', stopToken: token };
  // Before `minTokens` the sampler masks stop tokens. If it samples one anyway, the request does not end.
  if (state.outputTokens >= params.minTokens) {
    const isEos = !params.ignoreEos && eosTokenIds.includes(token);
    if (isEos || params.stopTokenIds.includes(token)) return { reason: 'stop', stopToken: token };
  }
  if (state.isCompleteWithoutEos) return { reason: 'stop' };
  if (state.outputTokens >= params.maxTokens || state.tokens.length >= maxModelLen) return { reason: 'length' };
  return undefined;
}
