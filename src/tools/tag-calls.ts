import { byName } from '../base/by-name.ts';
import type { CallSource } from './call-source.ts';
import { argumentTagSyntax, FunctionTags } from './function-tags.ts';
import type { ControlTags } from './held-text.ts';
import { JsonCalls } from './json-calls.ts';
import { type CallSyntax, MarkedParser } from './marked-parser.ts';
import { SteppedReader, type StepState } from './stepped-reader.ts';
import type { Tool } from './tool.ts';

const open = '<tool_call>';
const nemotronOpen = '<TOOLCALL>';
const functionOpen = '<function=';
const phiOpen = '<|tool_call|>';
const phiText = 'functools';
/** The tags after calls. Calls after `functools` have no closing tag. */
const closingTags: Readonly<Record<string, readonly string[]>> = byName({
  [open]: ['</tool_call>'],
  [functionOpen]: ['</tool_call>'],
  [nemotronOpen]: ['</TOOLCALL>'],
  [phiOpen]: ['<|/tool_call|>', '</|tool_call|>'],
  [phiText]: [],
});

/** Calls in `<tool_call>` or a tag of another name, as JSON or as tags. Several can be in one `<tool_call>`. */
class TagCalls extends SteppedReader {
  readonly #source: CallSource;
  readonly #closingTags: readonly string[];
  #hasCalls: boolean = false;

  constructor(source: CallSource, marker: string) {
    super();
    this.#source = source;
    this.#closingTags = closingTags[marker]!;
    if (marker === functionOpen) this.#leaveTo(new FunctionTags(source));
  }

  protected step(): StepState {
    this.#source.takeSpace();
    const { held } = this.#source;
    if (held.isEmpty) return 'open';
    const letter = held.peek()[0]!;
    if (!this.#hasCalls && (letter === '{' || letter === '[')) {
      return this.#leaveTo(new JsonCalls(this.#source, { needsArguments: false }));
    }
    const isFunction = this.#source.takeTag(functionOpen);
    if (isFunction === true) return this.#leaveTo(new FunctionTags(this.#source));
    const ends = this.#hasCalls ? this.#closingTags.map((tag) => this.#source.takeTag(tag)) : [];
    if (ends.includes(true)) return 'ended';
    return isFunction === undefined || ends.includes(undefined) ? 'open' : 'refused';
  }

  #leaveTo(calls: JsonCalls | FunctionTags): 'again' {
    this.#hasCalls = true;
    return this.leaveTo(calls);
  }
}

/**
 * The format of Hermes 2 Pro, Qwen 2.5 and Qwen 3:
 *
 *   content <tool_call>{"name": "f", "arguments": {...}}</tool_call> <tool_call>...</tool_call>
 */
const hermes: CallSyntax = { markers: [open], reader: (source, marker) => new TagCalls(source, marker) };

/**
 * The format of Nemotron Nano 2:
 *
 *   content <TOOLCALL>[{"name": "f", "arguments": {...}}, ...]</TOOLCALL>
 */
const nemotron: CallSyntax = { ...hermes, markers: [nemotronOpen] };

/**
 * The format of Qwen3-Coder, Qwen 3.5 and Nemotron 3. The models sometimes leave out the outer tag.
 *
 *   content <tool_call><function=f><parameter=a>value</parameter></function></tool_call>
 */
const functionTags: CallSyntax = { ...hermes, markers: [open, functionOpen] };

/**
 * The format of GLM 4.5 to 4.7:
 *
 *   content <tool_call>f<arg_key>a</arg_key><arg_value>value</arg_value></tool_call>
 */
const argumentTags: CallSyntax = { markers: [open], reader: (source) => new FunctionTags(source, argumentTagSyntax) };

/**
 * The format of Phi-4-mini, and the one that vLLM's template for it asks for:
 *
 *   content <|tool_call|>[{"name": "f", "arguments": {...}}, ...]<|/tool_call|>
 *   functools[{"name": "f", "arguments": {...}}, ...]
 */
const phi: CallSyntax = { ...hermes, markers: [phiOpen, phiText] };

export const phiParser = (tools: readonly Tool[], controls?: ControlTags): MarkedParser =>
  new MarkedParser(phi, tools, controls);
export const argumentTagsParser = (tools: readonly Tool[], controls?: ControlTags): MarkedParser =>
  new MarkedParser(argumentTags, tools, controls);
export const hermesParser = (tools: readonly Tool[], controls?: ControlTags): MarkedParser =>
  new MarkedParser(hermes, tools, controls);
export const nemotronParser = (tools: readonly Tool[], controls?: ControlTags): MarkedParser =>
  new MarkedParser(nemotron, tools, controls);
export const functionTagsParser = (tools: readonly Tool[], controls?: ControlTags): MarkedParser =>
  new MarkedParser(functionTags, tools, controls);
