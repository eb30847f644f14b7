import { randomUUID } from 'node:crypto';
import { assertDefined } from '../../../base/assert.ts';
import { tokenId } from '../../../core/ids.ts';
import { type LogprobList, PackedLogprobs } from '../../../core/packed-logprobs.ts';
import { TokenBuffer } from '../../../core/tokens.ts';
import type { OutputDelta } from '../../../engine/contract.ts';
import type { AnswerPart } from '../../../tools/tool.ts';
import type { ItemStatus, OutputItem, OutputTextPart, TokenLogprobList, UnnumberedEvent } from './response-types.ts';
import { customInput, type ToolName } from './tool-names.ts';

interface OpenText {
  readonly kind: 'content' | 'reasoning';
  readonly id: string;
  text: string;
  /** Absent: not requested. */
  readonly scores: TokenScores | undefined;
}

/** Tokens and their logprobs. */
interface TokenScores {
  readonly tokens: TokenBuffer;
  readonly logprobs: PackedLogprobs;
}

interface OpenCall {
  readonly kind: 'call';
  readonly id: string;
  readonly callId: string;
  readonly tool: ToolName;
  text: string;
}

export interface OutputItemsOptions {
  /** False: calls after the first are left out. */
  readonly areParallel: boolean;
  /** The tools of the request, by the names that the model sees. */
  readonly tools: ReadonlyMap<string, ToolName>;
  /** The id of a call, in the format that the model's template accepts. `written`: by the model. */
  callId(written: string | undefined, isUsed: (id: string) => boolean): string;
  /** The number of top tokens; absent: logprobs are not requested. */
  readonly topLogprobs?: number | undefined;
  /** Logprobs as the API writes them. */
  renderLogprobs(tokenIds: ArrayLike<number>, logprobs: LogprobList): TokenLogprobList;
}

/**
 * The output of one response: items in the order in which the model wrote them. At most one item is open, the last.
 *
 *     parts:  reasoning reasoning content content call arguments arguments
 *     items:  [   reasoning     ] [   message   ] [    function_call     ]
 *
 * Each method returns the events that tell a client what changed.
 */
export class OutputItems {
  readonly #options: OutputItemsOptions;
  readonly #closed: OutputItem[] = [];
  #open: OpenText | OpenCall | undefined;
  /** Tokens since the last part: the parser can keep their text back. */
  #tokens: number[] = [];
  #logprobs: NonNullable<OutputDelta['logprobs']>[number][] = [];
  #reasoningTokens = 0;

  constructor(options: OutputItemsOptions) {
    this.#options = options;
  }

  /** Tokens whose text is reasoning. */
  get reasoningTokens(): number {
    return this.#reasoningTokens;
  }

  /** The items so far. */
  items(): OutputItem[] {
    return this.#open === undefined ? [...this.#closed] : [...this.#closed, this.#itemOf(this.#open, 'in_progress')];
  }

  /** What one step of the engine added. */
  add(parts: readonly AnswerPart[], { tokenIds, logprobs = [] }: OutputDelta): UnnumberedEvent[] {
    this.#tokens.push(...tokenIds);
    this.#logprobs.push(...logprobs);
    const events: UnnumberedEvent[] = [];
    for (const part of parts) {
      if (part.kind === 'content' || part.kind === 'reasoning') this.#addText(part.kind, part.text, events);
      else if (this.#options.areParallel || part.index === 0) this.#addCall(part, events);
      this.#tokens = [];
      this.#logprobs = [];
    }
    return events;
  }

  /** The answer has ended. An answer without text and calls has an empty message, as with OpenAI. */
  end(status: 'completed' | 'incomplete'): UnnumberedEvent[] {
    const events: UnnumberedEvent[] = [];
    if (this.#open === undefined && this.#closed.length === 0) this.#begin(this.#newText('content'), events);
    this.#close(status, events);
    return events;
  }

  /** The answer ends without a reason of its own: its last item is incomplete. */
  cut(): void {
    this.#close('incomplete', []);
  }

  #addText(kind: OpenText['kind'], text: string, events: UnnumberedEvent[]): void {
    if (this.#open?.kind !== kind) this.#begin(this.#newText(kind), events);
    const open = this.#open as OpenText;
    open.text += text;
    const place = { item_id: open.id, output_index: this.#closed.length, content_index: 0 };
    if (kind === 'reasoning') {
      this.#reasoningTokens += this.#tokens.length;
      events.push({ type: 'response.reasoning_text.delta', ...place, delta: text });
      return;
    }
    for (const token of this.#tokens) open.scores?.tokens.push(tokenId(token));
    open.scores?.logprobs.pushAll(this.#logprobs);
    const logprobs = open.scores === undefined ? [] : this.#options.renderLogprobs(this.#tokens, this.#logprobs);
    events.push({ type: 'response.output_text.delta', ...place, delta: text, logprobs });
  }

  #addCall(part: AnswerPart & { kind: 'call' | 'arguments' }, events: UnnumberedEvent[]): void {
    if (part.kind === 'call') {
      const callId = this.#options.callId(part.id, (id) =>
        this.#closed.some((item) => 'call_id' in item && item.call_id === id),
      );
      const tool = this.#options.tools.get(part.name) ?? { name: part.name, isCustom: false };
      this.#begin({ kind: 'call', id: newId(tool.isCustom ? 'ctc' : 'fc'), callId, tool, text: '' }, events);
      return;
    }
    const open = assertDefined(this.#open, 'arguments follow the name of their call');
    open.text += part.text;
    // The input of a custom tool is inside of JSON, and is read when it is complete.
    if (open.kind === 'call' && open.tool.isCustom) return;
    const place = { item_id: open.id, output_index: this.#closed.length };
    events.push({ type: 'response.function_call_arguments.delta', ...place, delta: part.text });
  }

  #begin(item: OpenText | OpenCall, events: UnnumberedEvent[]): void {
    this.#close('completed', events);
    this.#open = item;
    const output_index = this.#closed.length;
    const added = this.#itemOf(item, 'in_progress');
    const empty = 'call_id' in added ? added : { ...added, content: [] as const };
    events.push({ type: 'response.output_item.added', output_index, item: empty });
    if (item.kind === 'call') return;
    const place = { item_id: item.id, output_index, content_index: 0 };
    events.push({ type: 'response.content_part.added', ...place, part: this.#partOf(item) });
  }

  #close(status: 'completed' | 'incomplete', events: UnnumberedEvent[]): void {
    const open = this.#open;
    if (open === undefined) return;
    const output_index = this.#closed.length;
    const { id: item_id, text } = open;
    if (open.kind === 'call') events.push(...callEnd(open, { item_id, output_index }));
    else {
      const place = { item_id, output_index, content_index: 0 };
      if (open.kind === 'reasoning') events.push({ type: 'response.reasoning_text.done', ...place, text });
      else events.push({ type: 'response.output_text.done', ...place, text, logprobs: this.#textPart(open).logprobs });
      events.push({ type: 'response.content_part.done', ...place, part: this.#partOf(open) });
    }
    const item = this.#itemOf(open, status);
    this.#closed.push(item);
    this.#open = undefined;
    events.push({ type: 'response.output_item.done', output_index, item });
  }

  #newText(kind: OpenText['kind']): OpenText {
    const { topLogprobs } = this.#options;
    const isScored = kind === 'content' && topLogprobs !== undefined;
    return {
      kind,
      id: newId(kind === 'content' ? 'msg' : 'rs'),
      text: '',
      scores: isScored ? { tokens: new TokenBuffer([]), logprobs: new PackedLogprobs(topLogprobs) } : undefined,
    };
  }

  #textPart({ text, scores }: OpenText): OutputTextPart {
    const logprobs =
      scores === undefined
        ? []
        : this.#options.renderLogprobs(scores.tokens.view(), scores.logprobs.first(scores.logprobs.length));
    return { type: 'output_text', text, annotations: [], logprobs };
  }

  #partOf(open: OpenText) {
    return open.kind === 'content' ? this.#textPart(open) : ({ type: 'reasoning_text', text: open.text } as const);
  }

  #itemOf(open: OpenText | OpenCall, status: ItemStatus): OutputItem {
    const { id, text } = open;
    if (open.kind === 'call') return callItem(open, status);
    if (open.kind === 'content') {
      return { type: 'message', id, status, role: 'assistant', content: [this.#textPart(open)] };
    }
    return { type: 'reasoning', id, status, summary: [], content: [{ type: 'reasoning_text', text }] };
  }
}

export const newId = (prefix: string): string => `${prefix}_${randomUUID().replaceAll('-', '')}`;

function callEnd({ tool, text }: OpenCall, place: { item_id: string; output_index: number }): UnnumberedEvent[] {
  if (!tool.isCustom) {
    return [{ type: 'response.function_call_arguments.done', ...place, name: tool.name, arguments: text }];
  }
  const input = customInput(text);
  return [
    { type: 'response.custom_tool_call_input.delta', ...place, delta: input },
    { type: 'response.custom_tool_call_input.done', ...place, input },
  ];
}

function callItem({ id, text, callId, tool }: OpenCall, status: ItemStatus): OutputItem {
  const { name, namespace, isCustom } = tool;
  const head = { id, status, call_id: callId, name, ...(namespace === undefined ? {} : { namespace }) };
  if (!isCustom) return { type: 'function_call', ...head, arguments: text };
  return { type: 'custom_tool_call', ...head, input: status === 'in_progress' ? '' : customInput(text) };
}
