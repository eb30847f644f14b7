import { callId } from '../../../engine/chat/call-id.ts';
import type { AsyncEngine } from '../../../engine/contract.ts';
import type { AnsweredDelta } from '../../../engine/early-end.ts';
import { AnswerReader } from '../../../tools/answer-reader.ts';
import type { AnswerFormat } from '../../../tools/formats.ts';
import type { GenerationMeter } from '../../generation/generation.ts';
import { errorAnswer } from '../../http/server-errors.ts';
import { chatLogprobs } from '../openai/logprobs.ts';
import { kvTransferParamsField } from '../openai/render.ts';
import { newId, OutputItems } from './output-items.ts';
import type {
  RequestEcho,
  ResponseBody,
  ResponseEvent,
  ResponseStatus,
  ResponseUsage,
  UnnumberedEvent,
} from './response-types.ts';
import type { ToolName } from './tool-names.ts';

export interface ResponseRunOptions {
  readonly engine: AsyncEngine;
  readonly echo: RequestEcho;
  readonly format: AnswerFormat;
  /** The tools of the request, by the names that the model sees. */
  readonly tools: ReadonlyMap<string, ToolName>;
  /** The rendered conversation. */
  readonly prompt: string;
  readonly meter: GenerationMeter;
  /** The number of top tokens; absent: logprobs are not requested. */
  readonly topLogprobs?: number | undefined;
  /** Milliseconds since 1970. */
  now(): number;
}

/**
 * One response while it is generated, and its state for clients that ask for it.
 *
 *     queued -> in_progress -> completed | incomplete (its length ended it) | failed | cancelled
 */
export class ResponseRun {
  readonly id = newId('resp');
  readonly #options: ResponseRunOptions;
  readonly #reader: AnswerReader;
  readonly #items: OutputItems;
  readonly #createdAt: number;
  #completedAt: number | null = null;
  #status: ResponseStatus = 'queued';
  #error: ResponseBody['error'] = null;
  #last: AnsweredDelta | undefined;
  #eventCount = 0;

  constructor(options: ResponseRunOptions) {
    const { echo, engine, format, prompt, tools, topLogprobs } = options;
    this.#options = options;
    this.#createdAt = this.#seconds();
    this.#reader = new AnswerReader(format, prompt);
    this.#items = new OutputItems({
      areParallel: echo.parallel_tool_calls,
      tools,
      callId: (written, isUsed) => callId(format, written, (id) => prompt.includes(id) || isUsed(id)),
      topLogprobs,
      renderLogprobs: (tokenIds, logprobs) => chatLogprobs(engine, { tokenIds, logprobs })?.content ?? [],
    });
  }

  get status(): ResponseStatus {
    return this.#status;
  }

  get output() {
    return this.#items.items();
  }

  /** The events for what one step of the engine added. The first step also begins the response, and the last ends it. */
  add(delta: AnsweredDelta): ResponseEvent[] {
    this.#last = delta;
    const events: UnnumberedEvent[] = this.#status === 'queued' ? this.#begin() : [];
    const { finish } = delta;
    events.push(...this.#items.add(this.#reader.add(delta), delta));
    if (finish !== undefined) events.push(...this.#end(finish.reason === 'length' ? 'incomplete' : 'completed'));
    return this.#numbered(events);
  }

  /** The response has failed. */
  fail(error: unknown): ResponseEvent[] {
    const begin = this.#status === 'queued' ? this.#begin() : [];
    return this.#numbered([...begin, ...this.#fail(error)]);
  }

  /** The client does not want the response any more. Later deltas must not be added. */
  cancel(): void {
    this.#items.cut();
    this.#status = 'cancelled';
  }

  body(): ResponseBody {
    const { echo, engine } = this.#options;
    const hasEnded = this.#status !== 'queued' && this.#status !== 'in_progress';
    return {
      id: this.id,
      object: 'response',
      created_at: this.#createdAt,
      completed_at: this.#completedAt,
      model: engine.model.name,
      status: this.#status,
      error: this.#error,
      incomplete_details: this.#status === 'incomplete' ? { reason: 'max_output_tokens' } : null,
      output: this.#items.items(),
      usage: hasEnded ? this.#usage() : null,
      ...echo,
      ...kvTransferParamsField(this.#last === undefined ? [] : [this.#last]),
    };
  }

  #begin(): UnnumberedEvent[] {
    this.#status = 'in_progress';
    const response = this.body();
    return [
      { type: 'response.created', response },
      { type: 'response.in_progress', response },
    ];
  }

  #end(status: 'completed' | 'incomplete'): UnnumberedEvent[] {
    const events = this.#items.end(status);
    this.#status = status;
    if (status === 'completed') this.#completedAt = this.#seconds();
    return [...events, { type: `response.${status}`, response: this.body() }];
  }

  #fail(error: unknown): UnnumberedEvent[] {
    const { message } = errorAnswer(error).body.error;
    this.#items.cut();
    this.#status = 'failed';
    this.#error = { code: 'server_error', message };
    return [{ type: 'response.failed', response: this.body() }];
  }

  #numbered(events: readonly UnnumberedEvent[]): ResponseEvent[] {
    return events.map((event) => ({ ...event, sequence_number: this.#eventCount++ }));
  }

  #usage(): ResponseUsage {
    const { meter } = this.#options;
    const { promptTokens, outputTokens, cachedTokens } = meter;
    return {
      input_tokens: promptTokens,
      input_tokens_details: { cached_tokens: cachedTokens },
      output_tokens: outputTokens,
      output_tokens_details: { reasoning_tokens: this.#items.reasoningTokens },
      total_tokens: promptTokens + outputTokens,
    };
  }

  #seconds(): number {
    return Math.floor(this.#options.now() / 1000);
  }
}
