import { randomUUID } from 'node:crypto';
import { assertDefined } from '../../base/assert.ts';
import type { AnswerPart } from '../../tools/tool.ts';
import type { ItemStatus, OutputItem, OutputTextPart, TokenLogprob, UnnumberedEvent } from './response-types.ts';
import { customInput, type ToolName } from './tool-names.ts';

interface OpenText {
  readonly kind: 'content' | 'reasoning';
  readonly id: string;
  text: string;
  readonly logprobs: TokenLogprob[];
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
  #tokens = 0;
  #logprobs: TokenLogprob[] = [];
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
    return this.#open === undefined ? [...this.#closed] : [...this.#closed, itemOf(this.#open, 'in_progress')];
  }

  /** What one step of the engine added. `logprobs` is empty if they were not requested. */
  add(parts: readonly AnswerPart[], tokens: number, logprobs: readonly TokenLogprob[]): UnnumberedEvent[] {
    this.#tokens += tokens;
    this.#logprobs.push(...logprobs);
    const events: UnnumberedEvent[] = [];
    for (const part of parts) {
      if (part.kind === 'content' || part.kind === 'reasoning') this.#addText(part.kind, part.text, events);
      else if (this.#options.areParallel || part.index === 0) this.#addCall(part, events);
      this.#tokens = 0;
      this.#logprobs = [];
    }
    return events;
  }

  /** The answer has ended. An answer without text and calls has an empty message, as with OpenAI. */
  end(status: 'completed' | 'incomplete'): UnnumberedEvent[] {
    const events: UnnumberedEvent[] = [];
    if (this.#open === undefined && this.#closed.length === 0) this.#begin(newText('content'), events);
    this.#close(status, events);
    return events;
  }

  /** The answer ends without a reason of its own: its last item is incomplete. */
  cut(): void {
    this.#close('incomplete', []);
  }

  #addText(kind: OpenText['kind'], text: string, events: UnnumberedEvent[]): void {
    if (this.#open?.kind !== kind) this.#begin(newText(kind), events);
    const open = this.#open as OpenText;
    open.text += text;
    const place = { item_id: open.id, output_index: this.#closed.length, content_index: 0 };
    if (kind === 'reasoning') {
      this.#reasoningTokens += this.#tokens;
      events.push({ type: 'response.reasoning_text.delta', ...place, delta: text });
      return;
    }
    open.logprobs.push(...this.#logprobs);
    events.push({ type: 'response.output_text.delta', ...place, delta: text, logprobs: this.#logprobs });
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
    const added = itemOf(item, 'in_progress');
    const empty = 'call_id' in added ? added : { ...added, content: [] as const };
    events.push({ type: 'response.output_item.added', output_index, item: empty });
    if (item.kind === 'call') return;
    const place = { item_id: item.id, output_index, content_index: 0 };
    events.push({ type: 'response.content_part.added', ...place, part: partOf(item) });
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
      else events.push({ type: 'response.output_text.done', ...place, text, logprobs: [...open.logprobs] });
      events.push({ type: 'response.content_part.done', ...place, part: partOf(open) });
    }
    const item = itemOf(open, status);
    this.#closed.push(item);
    this.#open = undefined;
    events.push({ type: 'response.output_item.done', output_index, item });
  }
}

export const newId = (prefix: string): string => `${prefix}_${randomUUID().replaceAll('-', '')}`;

const newText = (kind: OpenText['kind']): OpenText => ({
  kind,
  id: newId(kind === 'content' ? 'msg' : 'rs'),
  text: '',
  logprobs: [],
});

const textPart = ({ text, logprobs }: OpenText): OutputTextPart => ({
  type: 'output_text',
  text,
  annotations: [],
  logprobs: [...logprobs],
});

const partOf = (open: OpenText) =>
  open.kind === 'content' ? textPart(open) : ({ type: 'reasoning_text', text: open.text } as const);

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

function itemOf(open: OpenText | OpenCall, status: ItemStatus): OutputItem {
  const { id, text } = open;
  if (open.kind === 'call') {
    const { name, namespace, isCustom } = open.tool;
    const head = { id, status, call_id: open.callId, name, ...(namespace === undefined ? {} : { namespace }) };
    if (!isCustom) return { type: 'function_call', ...head, arguments: text };
    return { type: 'custom_tool_call', ...head, input: status === 'in_progress' ? '' : customInput(text) };
  }
  if (open.kind === 'content') {
    return { type: 'message', id, status, role: 'assistant', content: [textPart(open)] };
  }
  return { type: 'reasoning', id, status, summary: [], content: [{ type: 'reasoning_text', text }] };
}
