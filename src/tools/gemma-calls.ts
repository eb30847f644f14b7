import { type CallSource, nameLengthMax } from './call-source.ts';
import { GemmaReader, quote } from './gemma-values.ts';
import type { ControlTags } from './held-text.ts';
import { type CallSyntax, MarkedParser } from './marked-parser.ts';
import { SteppedReader, type StepState } from './stepped-reader.ts';
import type { Tool } from './tool.ts';

const open = '<|tool_call>';
const close = '<tool_call|>';

/**
 * The format of Gemma 4, whose calls are read when they are complete:
 *
 *   content <|tool_call>call:f{city:<|"|>Rome<|"|>,days:3}<tool_call|><|tool_call>...<tool_call|>
 */
class GemmaCalls extends SteppedReader {
  readonly #source: CallSource;
  #state: 'before name' | 'name' | 'arguments' = 'before name';
  #name = '';
  #text = '';
  #isInText: boolean = false;

  constructor(source: CallSource) {
    super();
    this.#source = source;
  }

  /** An answer may end without the last mark. */
  override end(isCut: boolean): void {
    if (this.#state !== 'arguments' || this.#isInText) return;
    const text = isCut ? '' : this.#source.held.takeAll();
    this.#source.wait(text);
    this.#text += text;
    if (this.#finish() === 'ended') this.#source.drop();
  }

  protected step(): StepState {
    if (this.#state === 'before name') return this.#readStart();
    return this.#state === 'name' ? this.#readName() : this.#readArguments();
  }

  #readStart(): StepState {
    this.#source.takeSpace();
    if (this.#source.held.isEmpty) return 'open';
    const isCall = this.#source.takeTag('call:');
    if (isCall !== true) return isCall === undefined ? 'open' : 'refused';
    this.#state = 'name';
    return 'again';
  }

  #readName(): StepState {
    const text = this.#source.held.peek();
    const length = text.indexOf('{');
    const name = length < 0 ? text : text.slice(0, length);
    if (name.length > nameLengthMax || /[<>"\n]/.test(name)) return 'refused';
    if (length < 0) return 'open';
    this.#name = name.trim();
    if (!this.#source.tools.has(this.#name)) return 'refused';
    this.#source.take(length);
    this.#state = 'arguments';
    return 'again';
  }

  #readArguments(): StepState {
    const { text, tag = '' } = this.#source.held.takeUntil(...(this.#isInText ? [quote] : [quote, close]));
    this.#source.wait(text + tag);
    this.#text += text;
    if (tag === '') return 'open';
    if (tag === close) return this.#finish();
    this.#text += quote;
    this.#isInText = !this.#isInText;
    return 'again';
  }

  #finish(): 'ended' | 'refused' {
    const json = new GemmaReader(this.#text).object();
    if (json === undefined) return 'refused';
    this.#source.begin(this.#name);
    this.#source.arguments(json);
    return 'ended';
  }
}

const gemmaCalls: CallSyntax = { markers: [open], reader: (source) => new GemmaCalls(source) };

export const gemmaParser = (tools: readonly Tool[], controls?: ControlTags): MarkedParser =>
  new MarkedParser(gemmaCalls, tools, controls);
