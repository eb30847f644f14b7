import { setImmediate as nextTurn } from 'node:timers/promises';
import { assertDefined } from '../../src/base/assert.ts';
import { interrupted } from '../errors.ts';
import type { RandomTokens } from '../random-tokens.ts';
import type { LlamaReference } from './llama-reference.ts';
import type { RunTimes, TurnTimes } from './run-times.ts';
import type { Turn, Workload } from './workload.ts';

/** libllama's default size of a logical batch. */
export const REFERENCE_BATCH = 2048;

/**
 * Runs a workload on libllama in the fastest way. libllama computes the shared prefix once and copies it to every
 * sequence, and a sequence keeps its KV from turn to turn. Batches are filled as by llama.cpp's server: the next token of
 * each generating sequence, and as many prompt tokens as fit. Tokens are random instead of sampled, which saves libllama
 * that work. Resolves with the seconds of the run.
 */
export async function converseInBatches(
  reference: LlamaReference,
  { prefix, conversations }: Workload,
  times: RunTimes,
  { random, signal }: { readonly random: RandomTokens; readonly signal: AbortSignal },
): Promise<number> {
  const startedMs = performance.now();
  reference.clear();
  if (prefix.length > 0) reference.decode(prefix);
  for (let i = 1; i < conversations.length && prefix.length > 0; i++) reference.copySequence(0, i);
  // The prefix is part of the first prompt of each conversation.
  let open = conversations.map((turns, i) => new Conversation(i, prefix.length, turns, times.beginTurn(startedMs)));
  while (open.length > 0) {
    const rows = new Rows();
    // A generating conversation adds one row; a conversation with a prompt adds as many rows as fit.
    const byNeed = [...open].sort((a, b) => a.unreadCount - b.unreadCount);
    const sampled = byNeed.filter((conversation) => conversation.addRows(rows, REFERENCE_BATCH));
    reference.decodeBatch(rows);
    const nowMs = performance.now();
    for (const conversation of sampled) conversation.addToken(random.take(1)[0] ?? 0, times, nowMs);
    open = open.filter(({ isDone }) => !isDone);
    await nextTurn();
    if (signal.aborted) throw interrupted();
  }
  return (performance.now() - startedMs) / 1000;
}

/** One batch. */
class Rows {
  readonly tokens: number[] = [];
  readonly positions: number[] = [];
  readonly sequences: number[] = [];
  readonly wanted: number[] = [];
}

/** One conversation in a sequence of libllama. */
class Conversation {
  readonly #sequence: number;
  readonly #turns: readonly Turn[];
  #turn = 0;
  #times: TurnTimes;
  #position: number;
  /** Tokens that are not computed yet. */
  #unread: readonly number[];

  constructor(sequence: number, position: number, turns: readonly Turn[], times: TurnTimes) {
    this.#sequence = sequence;
    this.#turns = turns;
    this.#times = times;
    this.#position = position;
    this.#unread = Array.from(turns[0]?.prompt ?? []);
  }

  get unreadCount(): number {
    return this.#unread.length;
  }

  get isDone(): boolean {
    return this.#turn === this.#turns.length;
  }

  /** Appends as many of its unread tokens as fit. Returns true if this batch gives the next token. */
  addRows(rows: Rows, rowsMax: number): boolean {
    const count = Math.min(this.#unread.length, rowsMax - rows.tokens.length);
    for (let i = 0; i < count; i++) {
      rows.tokens.push(this.#unread[i]!);
      rows.positions.push(this.#position++);
      rows.sequences.push(this.#sequence);
      rows.wanted.push(i === this.#unread.length - 1 ? 1 : 0);
    }
    this.#unread = this.#unread.slice(count);
    return count > 0 && this.#unread.length === 0;
  }

  addToken(token: number, times: RunTimes, nowMs: number): void {
    this.#times.add(1, nowMs);
    this.#unread = [token];
    const turn = assertDefined(this.#turns[this.#turn], 'a conversation that is done gets no token');
    if (this.#times.tokenCount < turn.generateLength) return;
    const next = this.#turns[++this.#turn];
    if (next === undefined) return;
    this.#unread = [token, ...next.prompt];
    this.#times = times.beginTurn(nowMs);
  }
}
