import { createHash } from 'node:crypto';
import { assert } from '../../src/base/assert.ts';
import { blockCount, tokenCount } from '../../src/core/ids.ts';
import type { KvCacheSpec } from '../../src/core/kv-spec.ts';
import type { StepPlan, StepResult } from '../../src/core/step.ts';
import { Engine } from '../../src/engine/engine.ts';
import type { EngineSettings, RenderChat } from '../../src/engine/engine-parts.ts';
import { Sampler } from '../../src/runner/sampling/sampler.ts';
import { sampleWithDrafts } from '../../src/runner/sampling/verify-drafts.ts';
import type { SchedulerOptions } from '../../src/scheduler/contract.ts';
import type { ConnectorPort } from '../../src/scheduler/external-kv.ts';
import type { SliceChoice } from '../../src/scheduler/layered-prefill.ts';
import { Scheduler } from '../../src/scheduler/scheduler.ts';
import type { Speculator } from '../../src/scheduler/speculation/speculator.ts';
import type { DecodeOptions, EncodeOptions, TokenBytesOptions, Tokenizer } from '../../src/tokenizer/contract.ts';
import type { Executor } from '../../src/worker/executor.ts';

const pieces = ['the ', 'bird ', 'sings', '. ', '##', '#', 'END', ' and', '\n\n', 'é'];
const firstPiece = 256;
export const bos = firstPiece + pieces.length;
export const eos = bos + 1;
export const toyVocabSize = eos + 1;

/** Tokens are bytes, a few longer pieces and two control tokens, `<bos>` and `<eos>`. Text becomes bytes only. */
export class ToyTokenizer implements Tokenizer {
  readonly vocabSize = toyVocabSize;
  readonly tokenBytesMax: number;
  /** Texts that were given to `encodeInBackground`. */
  readonly backgroundTexts: string[] = [];
  /** Awaited by `encodeInBackground`. */
  beforeEncoding: ((text: string) => Promise<void>) | undefined;
  readonly bosTokenId = bos;
  readonly eosTokenIds = [eos];
  readonly pairTokens = { before: [bos], between: [eos], after: [eos] };
  isClosed: boolean = false;
  readonly #bytes = Array.from({ length: bos }, (_, id) =>
    id < firstPiece ? Uint8Array.of(id) : new TextEncoder().encode(pieces[id - firstPiece]),
  );

  constructor(tokenBytesMax = 5) {
    this.tokenBytesMax = tokenBytesMax;
  }

  encode(text: string, { addSpecial = true, parseSpecial = false }: EncodeOptions = {}): Int32Array {
    const parts = parseSpecial ? text.split(/(<eos>)/) : [text];
    const tokens = parts.flatMap((part, index) => (index % 2 === 1 ? [eos] : [...new TextEncoder().encode(part)]));
    return Int32Array.from(addSpecial ? [bos, ...tokens] : tokens);
  }

  /** Resolves after one turn of the event loop, or after `beforeEncoding` has resolved. */
  async encodeInBackground(text: string, options?: EncodeOptions, signal?: AbortSignal): Promise<Int32Array> {
    this.backgroundTexts.push(text);
    const aborted = new Promise<never>((_, reject) => {
      if (signal?.aborted === true) reject(signal.reason);
      signal?.addEventListener('abort', () => reject(signal.reason), { once: true });
    });
    await Promise.race([this.beforeEncoding?.(text) ?? new Promise(setImmediate), aborted]);
    return this.encode(text, options);
  }

  decodeParts(tokens: ArrayLike<number>, options?: DecodeOptions): string[] {
    return [this.decode(tokens, options)];
  }

  decode(tokens: ArrayLike<number>, { skipSpecialTokens = true } = {}): string {
    const special = !skipSpecialTokens;
    const bytes = Array.from(tokens).flatMap((token) => [...this.tokenBytes(token, { special })]);
    return new TextDecoder('utf-8', { ignoreBOM: true }).decode(Uint8Array.from(bytes));
  }

  tokenBytes(id: number, { special = false }: TokenBytesOptions = {}): Uint8Array {
    assert(id >= 0 && id < toyVocabSize, `token ${id}`);
    if (!this.isControl(id)) return this.#bytes[id]!;
    return new TextEncoder().encode(special ? (id === eos ? '<eos>' : '<bos>') : '');
  }

  isControl(id: number): boolean {
    return id >= bos;
  }

  isEndOfGeneration(id: number): boolean {
    return id === eos;
  }

  close(): void {
    this.isClosed = true;
  }
}

export interface ToyExecutorOptions {
  readonly blockCount?: number;
  /** Of the model, so that chunks are computed a few layers at a time; default: steps compute all layers. */
  readonly sliceableLayers?: number;
  /** Awaited before each step. */
  readonly beforeStep?: (step: number) => Promise<void>;
  /** The step, counted from 1, that rejects. */
  readonly failAtStep?: number;
}

/**
 * A model without weights: the logits of the next token are a hash of all tokens so far. They favour pieces, letters and the bytes
 * of birds. The real sampler samples. The model reads tokens and not KV, so it does not see the content of blocks.
 */
export class ToyExecutor implements Executor {
  readonly kvCacheSpec: KvCacheSpec;
  readonly #options: ToyExecutorOptions;
  readonly #sampler = new Sampler(toyVocabSize);
  readonly #logits = new Float32Array(toyVocabSize);
  steps = 0;
  isClosed: boolean = false;
  #isBusy: boolean = false;

  constructor(options: ToyExecutorOptions = {}) {
    this.#options = options;
    this.kvCacheSpec = {
      groups: [{ kind: 'full', blockSize: tokenCount(4), layers: [0] }],
      blockBytes: 64,
      blockCount: blockCount(options.blockCount ?? 400),
      fingerprint: 'toy',
      ...(options.sliceableLayers === undefined ? {} : { sliceableLayers: options.sliceableLayers }),
    };
  }

  async execute(plan: StepPlan): Promise<StepResult> {
    assert(!this.#isBusy && !this.isClosed, 'one step at a time, and no step after close');
    this.#isBusy = true;
    this.steps++;
    await this.#options.beforeStep?.(this.steps);
    if (this.steps === this.#options.failAtStep) throw new Error('the toy model failed');
    const sampled = plan.sequences.map((sequence) => {
      const { tokens, sample, spans, drafts } = sequence;
      if (sample === undefined) return undefined;
      const end = tokens.length + (drafts?.tokens.length ?? 0);
      assert(spans.at(-1)?.end === end, 'only the last token and drafts are sampled');
      return sampleWithDrafts(sequence, (_, before, allowed) => {
        fillLogits(this.#logits, before.view());
        return this.#sampler.sample(this.#logits, sample, before, { allowed });
      });
    });
    this.#isBusy = false;
    return { stepId: plan.stepId, sampled };
  }

  async close(): Promise<void> {
    assert(!this.#isBusy || this.#options.failAtStep !== undefined, 'the executor was closed during a step');
    this.isClosed = true;
  }
}

function fillLogits(logits: Float32Array, tokens: Int32Array): void {
  let hash = 0x811c9dc5;
  for (const token of tokens) hash = Math.imul(hash ^ token, 0x01000193) ^ (hash >>> 15);
  logits.fill(-8);
  const favour = (token: number) => {
    hash = Math.imul(hash ^ (hash >>> 13), 0x5bd1e995) + token;
    logits[token] = ((hash >>> 8) % 1000) / 250;
  };
  for (let token = firstPiece; token < bos; token++) favour(token);
  for (let token = 0x61; token < 0x67; token++) favour(token);
  for (const byte of [0xf0, 0x9f, 0x90, 0xa6, 0xc3, 0xa9]) favour(byte);
  favour(eos);
}

export interface ToyOptions extends ToyExecutorOptions {
  readonly scheduler?: Partial<SchedulerOptions>;
  readonly settings?: Partial<EngineSettings>;
  readonly connector?: ConnectorPort;
  readonly speculator?: Speculator;
  readonly sliceChoice?: SliceChoice;
  /** Default true. */
  readonly chatTemplate?: boolean;
  /** The tokenizer's `tokenBytesMax`. */
  readonly tokenBytesMax?: number;
}

const renderChat: RenderChat = (messages, { addGenerationPrompt }) =>
  messages.map(({ role, content }) => `${role}: ${content}<eos>`).join('') + (addGenerationPrompt ? 'bird: ' : '');

/** A real engine without weights, and its parts for inspection. */
export function toyEngine(options: ToyOptions = {}) {
  const schedulerOptions: SchedulerOptions = {
    maxNumBatchedTokens: 32,
    maxNumSeqs: 8,
    maxModelLen: 128,
    enablePrefixCaching: true,
    policy: 'fcfs',
    ...options.scheduler,
  };
  const executor = new ToyExecutor(options);
  const tokenizer = new ToyTokenizer(options.tokenBytesMax);
  const sha256 = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest();
  const scheduler = new Scheduler(executor.kvCacheSpec, schedulerOptions, sha256, {
    connector: options.connector,
    speculator: options.speculator,
    sliceChoice: options.sliceChoice,
  });
  const model = {
    name: 'toy',
    path: 'toy.gguf',
    architecture: 'toy',
    vocabSize: toyVocabSize,
    maxModelLen: schedulerOptions.maxModelLen,
    hasChatTemplate: options.chatTemplate ?? true,
  };
  const engine = new Engine(
    {
      scheduler,
      executor,
      tokenizer,
      model,
      inspector: scheduler.inspector,
      ...(model.hasChatTemplate ? { renderChat } : {}),
    },
    { scheduler: schedulerOptions, maxWaiting: 1000, invariants: 'all', ...options.settings },
  );
  return { engine, scheduler, executor, tokenizer };
}

/** Waits until the scheduler has no work: requests that have ended may still be in the step in flight. */
export async function untilIdle(scheduler: Pick<Scheduler, 'hasWork'>): Promise<void> {
  for (let turn = 0; turn < 1000 && scheduler.hasWork(); turn++) await new Promise(setImmediate);
  assert(!scheduler.hasWork(), 'the scheduler still has work');
}
