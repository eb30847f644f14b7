import { assert } from '../base/assert.ts';
import type { JsonObject } from '../base/json.ts';
import type { TokenId } from '../core/ids.ts';
import type { EngineRequest, FinishReason, RequestStats, RequestUpdate } from '../core/request.ts';
import type { TokenLogprobs } from '../core/step.ts';
import type { AbortedRequest } from '../scheduler/contract.ts';
import type { Tokenizer } from '../tokenizer/contract.ts';
import { StreamDecoder } from '../tokenizer/stream-decoder.ts';
import type { OutputDelta } from './contract.ts';
import type { OutputStream } from './output-stream.ts';
import { StopMatcher } from './stop-strings.ts';

type Finish = NonNullable<OutputDelta['finish']>;

/** What a delta tells, before the request's index and its wish for logprobs are applied. */
interface DeltaParts {
  readonly text: string;
  readonly tokenIds: readonly TokenId[];
  readonly logprobs: readonly TokenLogprobs[];
  readonly finish: Finish | undefined;
  readonly stats: RequestStats;
}

const withSpecial = { special: true } as const;
const withoutSpecial = { special: false } as const;

/**
 * One completion from the engine's side of text: turns the tokens that steps bring into deltas on the caller's stream.
 * Ends once: by the scheduler's word, by a stop string, or by `end`.
 */
export class RequestHandle {
  readonly request: EngineRequest;
  readonly #index: number;
  readonly #stream: OutputStream;
  readonly #tokenizer: Tokenizer;
  readonly #decoder = new StreamDecoder();
  readonly #matcher: StopMatcher;
  #outputTokens = 0;
  #stats: RequestStats | undefined;
  #hasEnded = false;

  constructor(request: EngineRequest, index: number, stream: OutputStream, tokenizer: Tokenizer) {
    this.request = request;
    this.#index = index;
    this.#stream = stream;
    this.#tokenizer = tokenizer;
    this.#matcher = new StopMatcher(request.params.stop, request.params.includeStopStrInOutput);
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** The running totals of the last update; undefined before the first. */
  get stats(): RequestStats | undefined {
    return this.#stats;
  }

  /**
   * Takes what a step did and pushes a delta. Afterwards `hasEnded` tells whether it was the last. `stopInScheduler` is
   * called when the update itself brings no end, but a stop string does; it returns what the end is to say besides.
   */
  receive(update: RequestUpdate, stopInScheduler: () => AbortedRequest | undefined): void {
    assert(!this.#hasEnded, `request ${this.request.id} gets a token after its end`);
    this.#stats = update.stats;
    const tokenIds: TokenId[] = [];
    const logprobs: TokenLogprobs[] = [];
    let text = '';
    let stop: string | undefined;
    for (const sampled of update.newTokens) {
      tokenIds.push(sampled.token);
      if (sampled.logprobs !== undefined) logprobs.push(sampled.logprobs);
      this.#outputTokens++;
      const scan = this.#scan(this.#textOf(sampled.token, update));
      text += scan.text;
      stop = scan.stop;
      if (stop !== undefined) break;
    }
    if (stop === undefined && update.finish !== undefined) {
      const rest = this.#flush();
      text += rest.text;
      stop = rest.stop;
    }
    let finish = this.#finishOf(update);
    if (stop !== undefined) {
      const ended = update.finish ?? stopInScheduler();
      finish = { reason: 'stop', stopReason: stop, ...kvTransferParamsOf(ended) };
    }
    this.#push({ text, tokenIds, logprobs, finish, stats: update.stats });
  }

  /** Ends it from outside, with the text that was held back. `aborted` is the scheduler's last word, when it had one. */
  end(reason: FinishReason, aborted: AbortedRequest | undefined): void {
    assert(!this.#hasEnded, `request ${this.request.id} ends twice`);
    const last = aborted?.stats ?? this.#stats ?? emptyStats(this.request);
    this.#stats = last;
    const finish = { reason, ...kvTransferParamsOf(aborted) };
    this.#push({ text: this.#flush().text, tokenIds: [], logprobs: [], finish, stats: last });
  }

  /** Ends it without a word, because nobody listens. */
  abandon(): void {
    assert(!this.#hasEnded, `request ${this.request.id} ends twice`);
    this.#hasEnded = true;
  }

  /** The characters that a token completes. A token that ends the completion is no part of its text, unless asked for. */
  #textOf(token: TokenId, update: RequestUpdate): string {
    const { includeStopStrInOutput, skipSpecialTokens } = this.request.params;
    if (update.finish?.stopToken === token && !includeStopStrInOutput) return '';
    return this.#decoder.push(this.#tokenizer.tokenBytes(token, skipSpecialTokens ? withoutSpecial : withSpecial));
  }

  /** As in vLLM, the text of the first `minTokens` tokens is not searched. */
  #scan(text: string): { readonly text: string; readonly stop?: string } {
    return this.#outputTokens <= this.request.params.minTokens ? { text } : this.#matcher.push(text);
  }

  /** What the decoder and the matcher still hold. The decoder's rest may, as U+FFFD, complete a stop string. */
  #flush(): { readonly text: string; readonly stop?: string } {
    const last = this.#scan(this.#decoder.flush());
    return last.stop === undefined ? { text: last.text + this.#matcher.flush() } : last;
  }

  #finishOf({ finish }: RequestUpdate): Finish | undefined {
    if (finish === undefined) return undefined;
    const { reason, stopToken, error } = finish;
    const ended = { reason, ...kvTransferParamsOf(finish) };
    if (error !== undefined) return { ...ended, error };
    // As in vLLM: the model's own end needs no reason; a stop token that the caller named does.
    const isNamed = stopToken !== undefined && this.request.params.stopTokenIds.includes(stopToken);
    return isNamed ? { ...ended, stopReason: stopToken } : ended;
  }

  #push({ text, tokenIds, logprobs, finish, stats }: DeltaParts): void {
    if (finish !== undefined) this.#hasEnded = true;
    this.#stream.push({
      index: this.#index,
      text,
      tokenIds,
      ...(this.request.params.logprobs === undefined ? {} : { logprobs }),
      ...(finish === undefined ? {} : { finish }),
      stats,
    });
  }
}

/** The connector's word to the client. */
function kvTransferParamsOf(ended: Pick<AbortedRequest, 'kvTransferParams'> | undefined): {
  kvTransferParams?: JsonObject;
} {
  return ended?.kvTransferParams === undefined ? {} : { kvTransferParams: ended.kvTransferParams };
}

function emptyStats(request: EngineRequest): RequestStats {
  return {
    promptTokens: request.promptTokens.length,
    cachedTokens: 0,
    outputTokens: 0,
    computedTokens: 0,
    recomputedTokens: 0,
    preemptions: 0,
  };
}
