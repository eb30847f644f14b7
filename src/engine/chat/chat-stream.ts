import { allowSharing } from '../../base/unless-aborted.ts';
import type { AsyncEngine, OutputDelta } from '../contract.ts';
import { OutputStream } from '../output-stream.ts';
import { ChatAnswer, type ChatAnswerOptions } from './chat-answer.ts';
import type { ChatDelta, ChatRequest } from './chat-contract.ts';
import { modelFormats } from './conversation.ts';
import { prepareChat } from './prepare-chat.ts';
import { readChat } from './read-chat.ts';

/** The answers of one chat as they are generated. The conversation is rendered first, on another thread if it is long. */
export class ChatStream implements AsyncIterableIterator<ChatDelta> {
  readonly #begun: Promise<BegunChat>;
  readonly #answers: ChatAnswer[] = [];
  readonly #giveUp: () => void;

  /** The request starts here. */
  constructor(engine: AsyncEngine, request: ChatRequest, signal: AbortSignal | undefined) {
    const stop = new AbortController();
    const onAbort = (): void => stop.abort();
    if (signal?.aborted === true) onAbort();
    allowSharing(signal);
    signal?.addEventListener('abort', onAbort, { once: true });
    this.#giveUp = () => {
      signal?.removeEventListener('abort', onAbort);
      stop.abort();
    };
    this.#begun = begin(engine, request, stop.signal);
    // The first `next` rejects with the error; without a reader it must not end the process.
    this.#begun.catch(() => undefined);
  }

  async next(): Promise<IteratorResult<ChatDelta, undefined>> {
    const { deltas, options } = await this.#begun;
    const result = await deltas.next();
    if (result.done === true) {
      this.#giveUp();
      return { value: undefined, done: true };
    }
    return { value: this.#read(result.value, options), done: false };
  }

  async return(): Promise<IteratorResult<ChatDelta, undefined>> {
    this.#giveUp();
    const begun = await this.#begun.catch(() => undefined);
    await begun?.deltas.return?.();
    return { value: undefined, done: true };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  #read(delta: OutputDelta, options: ChatAnswerOptions): ChatDelta {
    const { text: _, controls: __, finish, ...others } = delta;
    this.#answers[delta.index] ??= new ChatAnswer(options);
    const answer = this.#answers[delta.index]!;
    const added = answer.add(delta);
    if (finish === undefined) return { ...others, ...added };
    const reason = answer.finishReason(finish) ?? finish.reason;
    return { ...others, ...added, finish: { ...finish, reason, message: answer.message() } };
  }
}

interface BegunChat {
  readonly deltas: AsyncIterator<OutputDelta>;
  readonly options: ChatAnswerOptions;
}

async function begin(engine: AsyncEngine, request: ChatRequest, signal: AbortSignal): Promise<BegunChat> {
  const { messages, params = {}, ...others } = request;
  try {
    const chat = readChat(messages, params, others, engine.model.vocabSize);
    const { answers, ...prepared } = await prepareChat(engine, chat, modelFormats(engine.model, others), signal);
    return { deltas: engine.generate({ ...others, ...prepared }, { signal }), options: answers };
  } catch (error) {
    if (!signal.aborted) throw error;
    const format = { tools: undefined, offered: [], reasoning: undefined };
    return { deltas: OutputStream.ended(params.n ?? 1, 'abort'), options: { format, prompt: '', areParallel: true } };
  }
}
