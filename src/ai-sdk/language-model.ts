import { randomUUID } from 'node:crypto';
import type {
  LanguageModelV3,
  LanguageModelV3CallOptions,
  LanguageModelV3GenerateResult,
  LanguageModelV3StreamPart,
  LanguageModelV3StreamResult,
  SharedV3Warning,
} from '@ai-sdk/provider';
import { assertDefined } from '../base/assert.ts';
import type { AsyncEngine, ChatDelta } from '../engine/contract.ts';
import { earlyEnd } from '../engine/early-end.ts';
import { AnswerParts, answerContent, finishReason, usageOf } from './answer-parts.ts';
import { readCall } from './call-options.ts';

/**
 * An engine as a language model of the AI SDK. Version 3 of the specification is that of AI SDK 6; AI SDK 7 takes it too.
 * Errors of the engine are thrown unchanged (`KvasirError`).
 */
export class KvasirLanguageModel implements LanguageModelV3 {
  readonly specificationVersion = 'v3';
  readonly provider = 'kvasir';
  readonly modelId: string;
  /** The model reads text only. */
  readonly supportedUrls = {};
  readonly #engine: () => Promise<AsyncEngine>;

  /** `engine` is called for each request. */
  constructor(engine: () => Promise<AsyncEngine>, modelId: string) {
    this.#engine = engine;
    this.modelId = modelId;
  }

  async doGenerate(options: LanguageModelV3CallOptions): Promise<LanguageModelV3GenerateResult> {
    const { deltas, warnings, id, model } = await this.#begin(options);
    let last: ChatDelta | undefined;
    for await (const delta of deltas) last = delta;
    const { finish, stats } = assertDefined(last, 'a chat has at least one delta');
    const end = assertDefined(finish, 'the last delta ends the answer');
    const error = earlyEnd(end, options.abortSignal);
    if (error !== undefined) throw error;
    return {
      content: answerContent(end.message),
      finishReason: finishReason(end.reason),
      usage: usageOf(stats),
      warnings,
      response: { id, modelId: model, timestamp: new Date() },
    };
  }

  /** Resolves with the first token, so that a refused request rejects. */
  async doStream(options: LanguageModelV3CallOptions): Promise<LanguageModelV3StreamResult> {
    const { deltas, warnings, id, model } = await this.#begin(options);
    const head: LanguageModelV3StreamPart[] = [
      { type: 'stream-start', warnings },
      { type: 'response-metadata', id, modelId: model, timestamp: new Date() },
    ];
    const first = await deltas.next();
    return { stream: partStream(head, first, deltas, options.abortSignal) };
  }

  async #begin(options: LanguageModelV3CallOptions): Promise<BegunCall> {
    const { request, warnings } = readCall(options);
    const engine = await this.#engine();
    const { abortSignal: signal } = options;
    signal?.throwIfAborted();
    const id = `chat-${randomUUID()}`;
    const deltas = engine.chat({ requestId: id, ...request }, signal === undefined ? {} : { signal });
    return { deltas, warnings, id, model: engine.model.name };
  }
}

interface BegunCall {
  readonly deltas: AsyncIterableIterator<ChatDelta>;
  readonly warnings: SharedV3Warning[];
  readonly id: string;
  readonly model: string;
}

/** `pull` is called when the reader wants more; leaving the stream ends the request. */
function partStream(
  head: readonly LanguageModelV3StreamPart[],
  first: IteratorResult<ChatDelta>,
  deltas: AsyncIterator<ChatDelta>,
  signal: AbortSignal | undefined,
): ReadableStream<LanguageModelV3StreamPart> {
  const answer = new AnswerParts();
  let pending: IteratorResult<ChatDelta> | undefined = first;
  return new ReadableStream<LanguageModelV3StreamPart>({
    start(controller) {
      for (const part of head) controller.enqueue(part);
    },
    async pull(controller) {
      // A delta without visible text has no parts, and `pull` is called again only after a part.
      for (let parts = 0; parts === 0; ) {
        const { value: delta, done } = pending ?? (await deltas.next());
        pending = undefined;
        if (done === true) {
          controller.close();
          return;
        }
        const added = [...answer.add(delta), ...endOf(delta, signal)];
        for (const part of added) controller.enqueue(part);
        parts = added.length;
      }
    },
    async cancel() {
      await deltas.return?.();
    },
  });
}

function endOf({ finish, stats }: ChatDelta, signal: AbortSignal | undefined): LanguageModelV3StreamPart[] {
  if (finish === undefined) return [];
  const error = earlyEnd(finish, signal);
  if (error !== undefined && signal?.aborted === true) throw error;
  return [
    ...(error === undefined ? [] : [{ type: 'error', error } as const]),
    { type: 'finish', finishReason: finishReason(finish.reason), usage: usageOf(stats) },
  ];
}
