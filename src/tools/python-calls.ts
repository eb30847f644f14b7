import { type CallSource, nameLengthMax } from './call-source.ts';
import type { ControlTags } from './held-text.ts';
import { JsonCalls } from './json-calls.ts';
import { type CallSyntax, MarkedParser } from './marked-parser.ts';
import { PythonReader } from './python-values.ts';
import { SteppedReader, type StepState } from './stepped-reader.ts';
import type { Tool } from './tool.ts';

const open = '<|tool_call_start|>';
const close = '<|tool_call_end|>';
const olmoOpen = '<function_calls>';
const olmoClose = '</function_calls>';

/**
 * The format of LFM2: calls of Python with named arguments.
 *
 *   content <|tool_call_start|>[f(city="Rome", days=3), g()]<|tool_call_end|> content
 *
 * A call is read when it is complete. The models can be told to write JSON in the same place.
 */
class PythonCalls extends SteppedReader {
  readonly #source: CallSource;
  #state: 'before list' | 'before call' | 'call' | 'after call' = 'before list';
  #call = new CallEnd();
  #text = '';
  readonly #close: string;

  constructor(source: CallSource, close: string) {
    super();
    this.#source = source;
    this.#close = close;
  }

  protected step(): StepState {
    if (this.#state === 'call') return this.#readCall();
    this.#source.takeSpace();
    const { held } = this.#source;
    if (held.isEmpty) return 'open';
    const letter = held.peek()[0]!;
    if (this.#state === 'after call') return this.#readAfter(letter);
    if (letter === '[' && this.#state === 'before list') {
      // A list of objects begins in the same way.
      const next = /^\[\s*(\S)/.exec(held.peek())?.[1];
      if (next === undefined) return 'open';
      if (next === '{') return this.#readJson();
      this.#source.take(1);
      this.#state = 'before call';
      return 'again';
    }
    if (letter === '{') return this.#readJson();
    this.#call = new CallEnd();
    this.#text = '';
    this.#state = 'call';
    return 'again';
  }

  #readJson(): 'again' {
    this.#state = 'after call';
    return this.leaveTo(new JsonCalls(this.#source, { needsArguments: false }));
  }

  #readCall(): 'again' | 'open' | 'refused' {
    const used = this.#call.add(this.#source.held.peek());
    this.#text += this.#source.take(used);
    if (this.#call.state === 'open') return 'open';
    const call = this.#call.state === 'ended' ? readCall(this.#text) : undefined;
    if (call === undefined || !this.#source.tools.has(call.name)) return 'refused';
    this.#source.begin(call.name);
    this.#source.arguments(call.arguments);
    this.#state = 'after call';
    return 'again';
  }

  #readAfter(letter: string): 'again' | 'open' | 'ended' | 'refused' {
    const isEnd = this.#source.takeTag(this.#close);
    if (isEnd === true) return 'ended';
    if (isEnd === undefined) return 'open';
    // OLMo writes each call on a line of its own.
    const isNext = letter === ',' || (this.#close === olmoClose && /[\w.-]/.test(letter));
    if (!isNext && letter !== ']') return 'refused';
    if (letter === ',' || letter === ']') this.#source.take(1);
    if (isNext) this.#state = 'before call';
    return 'again';
  }
}

/** Finds the bracket that closes a call, in text that comes in pieces. */
class CallEnd {
  state: 'open' | 'ended' | 'refused' = 'open';
  #length = 0;
  #depth = 0;
  #quote = '';
  /** Quotes in a row: three of them begin and end a long string. */
  #quotes = 0;
  #lastQuote = '';
  #isEscaped: boolean = false;

  /** Returns the number of UTF-16 units that belong to the call. */
  add(text: string): number {
    let used = 0;
    while (used < text.length && this.state === 'open' && this.#read(text[used]!)) used++;
    return used;
  }

  /** Whether the letter belongs to the call. */
  #read(letter: string): boolean {
    if (this.#depth === 0) return this.#readName(letter);
    if (this.#quote !== '') {
      this.#readString(letter);
      return true;
    }
    if (letter === '"' || letter === "'") {
      // An empty string and a third quote begin a long string.
      const isLong = this.#quotes === 2 && letter === this.#lastQuote;
      this.#quote = isLong ? letter.repeat(3) : letter;
      this.#quotes = isLong ? 0 : 1;
      this.#lastQuote = letter;
      return true;
    }
    this.#quotes = 0;
    if ('([{'.includes(letter)) this.#depth++;
    else if (')]}'.includes(letter)) {
      if (--this.#depth === 0) this.state = 'ended';
    } else if (letter === '<') this.state = 'refused';
    return letter !== '<';
  }

  #readName(letter: string): boolean {
    if (letter === '(') this.#depth = 1;
    else if (++this.#length > nameLengthMax || /["')[\]{}<>,=\n]/.test(letter)) this.state = 'refused';
    return this.state !== 'refused';
  }

  #readString(letter: string): void {
    if (this.#isEscaped) {
      this.#isEscaped = false;
      this.#quotes = 0;
    } else if (letter === '\\') {
      this.#isEscaped = true;
      this.#quotes = 0;
    } else if (letter !== this.#quote[0]) this.#quotes = 0;
    else if (this.#quote.length === 1) {
      // The second of two quotes without a letter between them may begin a long string.
      this.#quotes = this.#quotes === 1 ? 2 : 0;
      this.#quote = '';
    } else if (++this.#quotes === 3) {
      this.#quote = '';
      this.#quotes = 0;
    }
  }
}

/** `f(a=1, b="x")`; undefined: the text is no call with named arguments. */
function readCall(text: string): { readonly name: string; readonly arguments: string } | undefined {
  const at = text.indexOf('(');
  const reader = new PythonReader(text, at + 1);
  const members: string[] = [];
  while (!reader.take(')')) {
    const name = reader.match(/[^\s=(),[\]{}'"]+/y);
    if (name === undefined || !reader.take('=')) return undefined;
    const value = reader.value();
    if (value === undefined || !(reader.take(',') || reader.next() === ')')) return undefined;
    members.push(`${JSON.stringify(name)}: ${value}`);
  }
  return reader.next() === '' ? { name: text.slice(0, at).trim(), arguments: `{${members.join(', ')}}` } : undefined;
}

const pythonCalls: CallSyntax = { markers: [open], reader: (source) => new PythonCalls(source, close) };

/**
 * The format of OLMo 3:
 *
 *   content <function_calls>f(city="Rome", days=3)
 *   g()</function_calls>
 */
const olmoCalls: CallSyntax = { markers: [olmoOpen], reader: (source) => new PythonCalls(source, olmoClose) };

export const pythonParser = (tools: readonly Tool[], controls?: ControlTags): MarkedParser =>
  new MarkedParser(pythonCalls, tools, controls);
export const olmoParser = (tools: readonly Tool[], controls?: ControlTags): MarkedParser =>
  new MarkedParser(olmoCalls, tools, controls);
