import { assert } from '../base/assert.ts';
import type { JsonObject } from '../base/json.ts';
import type { TokenId } from '../core/ids.ts';
import type { EngineRequest, FinishReason, RequestStats, RequestUpdate } from '../core/request.ts';
import type { TokenLogprobs } from '../core/step.ts';
import type { AbortedRequest } from '../scheduler/contract.ts';
import type { Tokenizer } from '../tokenizer/contract.ts';
import { StreamDecoder } from '../tokenizer/stream-decoder.ts';
import type { ControlSpan } from '../tools/answer-reader.ts';
import type { OutputDelta } from './contract.ts';
import type { OutputStream } from './output-stream.ts';
import type { Pooler } from './pooler.ts';
import { StopMatcher } from './stop-strings.ts';

type Finish = NonNullable<OutputDelta['finish']>;

/** The fields of a delta, before the index is added and unrequested logprobs are removed. */
interface DeltaParts {
  readonly text: string;
  readonly tokenIds: readonly TokenId[];
  readonly logprobs: readonly TokenLogprobs[];
  readonly promptLogprobs?: readonly TokenLogprobs[] | undefined;
  readonly embedding?: Float32Array | undefined;
  readonly finish: Finish | undefined;
  readonly stats: RequestStats;
}

const withSpecial = { special: true } as const;
const withoutSpecial = { special: false } as const;

/**
 * The text side of one completion: turns the tokens of steps into deltas on the caller's stream.
 * Ends once: when the scheduler ends the request, at a stop string, or by `end`.
 */
export class RequestHandle {
  readonly request: EngineRequest;
  /** The number of the completion. */
  readonly index: number;
  readonly #stream: OutputStream;
  readonly #tokenizer: Tokenizer;
  readonly #decoder: StreamDecoder;
  readonly #matcher: StopMatcher;
  readonly #pooler: Pooler | undefined;
  /** UTF-16 units of text that were decoded, and those that deltas had. */
  #decodedLength = 0;
  #pushedLength = 0;
  /** Names of control tokens in the text that no delta had, from the start of all text. */
  #controls: ControlSpan[] = [];
  #outputTokens = 0;
  #stats: RequestStats | undefined;
  #finishReason: FinishReason | undefined;

  /** `pooler`: of an embedding request. */
  // biome-ignore lint/complexity/useMaxParams: called once, by the engine
  constructor(request: EngineRequest, index: number, stream: OutputStream, tokenizer: Tokenizer, pooler?: Pooler) {
    this.request = request;
    this.index = index;
    this.#stream = stream;
    this.#tokenizer = tokenizer;
    this.#decoder = new StreamDecoder(tokenizer.hasByteTokens);
    this.#pooler = pooler;
    this.#matcher = new StopMatcher(request.params.stop, request.params.includeStopStrInOutput);
  }

  get hasEnded(): boolean {
    return this.#finishReason !== undefined;
  }

  get finishReason(): FinishReason | undefined {
    return this.#finishReason;
  }

  /** The running totals of the last update; undefined before the first. */
  get stats(): RequestStats | undefined {
    return this.#stats;
  }

  /**
   * Turns an update into a delta. Afterwards `hasEnded` says whether the delta was the last. `stopInScheduler` is called
   * if a stop string ends the request and the scheduler has not ended it; its result has the connector's answer.
   */
  receive(update: RequestUpdate, stopInScheduler: () => AbortedRequest | undefined): void {
    assert(!this.hasEnded, `request ${this.request.id} gets an update after its end`);
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
    const { maxTokens } = this.request.params;
    assert(this.#outputTokens <= maxTokens, `${this.#outputTokens} tokens for ${this.request.id} with ${maxTokens}`);
    let finish = this.#finishOf(update);
    if (stop !== undefined) {
      const ended = update.finish ?? stopInScheduler();
      finish = { reason: 'stop', stopReason: stop, ...kvTransferParamsOf(ended) };
    }
    const { logprobs: promptLogprobs, hidden } = update.prompt ?? {};
    if (hidden !== undefined) this.#pooler?.add(hidden);
    const embedding = finish?.reason === 'length' ? this.#pooler?.vector() : undefined;
    // A copy, because the scheduler writes the next update into the same object. A step with drafts may have tokens after the stop string, which are not part of the completion.
    const stats = { ...update.stats, outputTokens: this.#outputTokens };
    this.#stats = stats;
    this.#push({ text, tokenIds, logprobs, promptLogprobs, embedding, finish, stats });
  }

  /** Ends the completion from outside and pushes the text kept back. `aborted` is the scheduler's answer, if any. */
  end(reason: FinishReason, aborted: AbortedRequest | undefined): void {
    assert(!this.hasEnded, `request ${this.request.id} ends twice`);
    const last = aborted?.stats ?? this.#stats ?? emptyStats(this.request);
    this.#stats = last;
    const finish = { reason, ...kvTransferParamsOf(aborted) };
    this.#push({
      text: this.#flush().text,
      tokenIds: [],
      logprobs: [],
      finish,
      stats: last,
    });
  }

  /** Ends the completion without a delta, because the stream has no reader. */
  abandon(): void {
    assert(!this.hasEnded, `request ${this.request.id} ends twice`);
    this.#finishReason = 'abort';
  }

  /** The characters that a token completes. A stop token is not part of the text, unless the request asks for it. */
  #textOf(token: TokenId, update: RequestUpdate): string {
    const { includeStopStrInOutput, skipSpecialTokens } = this.request.params;
    if (update.finish?.stopToken === token && !includeStopStrInOutput) return '';
    const bytes = this.#tokenizer.tokenBytes(token, skipSpecialTokens ? withoutSpecial : withSpecial);
    const text = this.#decoder.push(bytes);
    this.#decodedLength += text.length;
    if (!skipSpecialTokens && this.#tokenizer.isControl(token)) {
      const { length } = Buffer.from(bytes).toString();
      this.#controls.push({ at: this.#decodedLength - length, length });
    }
    return text;
  }

  /** The control tokens that begin in the text of the next delta. */
  #takeControls(text: string): ControlSpan[] {
    const begin = this.#pushedLength;
    this.#pushedLength += text.length;
    const taken = this.#controls.filter(({ at }) => at < this.#pushedLength);
    this.#controls = this.#controls.slice(taken.length);
    return taken.map(({ at, length }) => ({ at: at - begin, length }));
  }

  /** As in vLLM, the text of the first `minTokens` tokens is not searched. */
  #scan(text: string): { readonly text: string; readonly stop?: string } {
    return this.#outputTokens <= this.request.params.minTokens ? { text } : this.#matcher.push(text);
  }

  /** The text kept in the decoder and the matcher. The decoder's last U+FFFD can complete a stop string. */
  #flush(): { readonly text: string; readonly stop?: string } {
    const last = this.#scan(this.#decoder.flush());
    return last.stop === undefined ? { text: last.text + this.#matcher.flush() } : last;
  }

  #finishOf({ finish }: RequestUpdate): Finish | undefined {
    if (finish === undefined) return undefined;
    const { reason, stopToken, error } = finish;
    const ended = { reason, ...kvTransferParamsOf(finish) };
    if (error !== undefined) return { ...ended, error };
    // As in vLLM: `stopReason` names a stop token of the caller, but not the model's EOS.
    const isNamed = stopToken !== undefined && this.request.params.stopTokenIds.includes(stopToken);
    return isNamed ? { ...ended, stopReason: stopToken } : ended;
  }

  #push({ text, tokenIds, logprobs, promptLogprobs, embedding, finish, stats }: DeltaParts): void {
    if (finish !== undefined) this.#finishReason = finish.reason;
    const controls = this.#takeControls(text);
    this.#stream.push({
      index: this.index,
      text,
      ...(controls.length === 0 ? {} : { controls }),
      tokenIds,
      ...(this.request.params.logprobs === undefined ? {} : { logprobs }),
      ...(promptLogprobs === undefined ? {} : { promptLogprobs }),
      ...(embedding === undefined ? {} : { embedding }),
      ...(finish === undefined ? {} : { finish }),
      stats,
    });
  }
}

/** The connector's answer to the client. */
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
