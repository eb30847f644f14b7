import { isJsonObject } from '../base/json.ts';
import { type CallSource, nameLengthMax } from './call-source.ts';
import { SteppedReader, type StepState } from './stepped-reader.ts';
import type { Tool } from './tool.ts';
import { afterJson, findValueEnd, type StringState, type TagSyntax } from './value-end.ts';
import { asJson, isOnlyText, typesOfParameter } from './written-values.ts';

export const functionTagSyntax: TagSyntax = {
  nameEnd: '>',
  parameterOpen: '<parameter=',
  parameterNameEnd: '>',
  valueClose: '</parameter>',
  close: '</function>',
  ends: [
    { tag: '</function>', before: ['</tool_call>', '<tool_call>', '<function='] },
    { tag: '</tool_call>', before: ['<tool_call>', '<function='] },
  ],
  hasLineBreaks: true,
};

/** Of GLM, behind `<tool_call>`: `f<arg_key>city</arg_key><arg_value>Rome</arg_value></tool_call>`, perhaps with line breaks between. */
export const argumentTagSyntax: TagSyntax = {
  parameterOpen: '<arg_key>',
  parameterNameEnd: '</arg_key>',
  valueOpen: '<arg_value>',
  valueClose: '</arg_value>',
  close: '</tool_call>',
  ends: [{ tag: '</tool_call>', before: ['<tool_call>'] }],
  hasLineBreaks: false,
};

/**
 * Reads a call of `functionTagSyntax` behind `<function=`, or one of another syntax:
 *
 *   f>
 *   <parameter=city>
 *   Rome
 *   </parameter>
 *   </function>
 *
 * Its arguments become JSON. The schema of a parameter decides whether its value is a text. Texts are passed on as they come.
 */
export class FunctionTags extends SteppedReader {
  readonly #source: CallSource;
  readonly #syntax: TagSyntax;
  #state: 'name' | 'between' | 'parameter' | 'open' | 'text' | 'value' = 'name';
  #tool: Tool | undefined;
  #hasBegun: boolean = false;
  /** The names of the parameters that the call has so far. */
  readonly #given = new Set<string>();
  #parameter = '';
  /** Whether the value began with a line break; undefined: no part of it was read. */
  #hasLines: boolean | undefined;
  #followsLineBreak: boolean = false;
  /** A line break that belongs to the value if more of it follows. */
  #lineBreak = '';
  #value = '';
  /** At the end of the part of the value that was taken. */
  #strings: StringState = 'outside';

  constructor(source: CallSource, syntax: TagSyntax = functionTagSyntax) {
    super();
    this.#source = source;
    this.#syntax = syntax;
  }

  /** Completes a call whose end the model has left out. If the answer is cut, only the part of a text is certain, and was passed on. */
  override end(isCut: boolean): void {
    if (isCut || !this.#hasBegun) return;
    if (this.#state === 'text' || this.#state === 'value') {
      this.#add(this.#source.held.takeAll());
      this.#endValue();
    }
    this.#source.drop();
    this.#source.arguments('}');
  }

  protected step(): StepState {
    switch (this.#state) {
      case 'name':
        return this.#readName();
      case 'between':
        return this.#readBetween();
      case 'parameter':
        return this.#readParameterName();
      case 'open':
        return this.#readValueOpen();
      default:
        return this.#readValue();
    }
  }

  #readName(): 'again' | 'open' | 'refused' {
    const { nameEnd } = this.#syntax;
    const name = nameEnd === undefined ? this.#takeBareName() : this.#takeName(nameEnd);
    if (typeof name !== 'string') return name === undefined ? 'open' : 'refused';
    this.#tool = this.#source.tools.get(name.trim());
    this.#state = 'between';
    return this.#tool === undefined ? 'refused' : 'again';
  }

  /** The text up to `nameEnd`; undefined: more text decides; null: it is too long for a name. */
  #takeName(nameEnd: string): string | undefined | null {
    const text = this.#source.held.peek();
    const end = text.slice(0, nameLengthMax + nameEnd.length).indexOf(nameEnd);
    if (end === -1) return text.length >= nameLengthMax + nameEnd.length ? null : undefined;
    return this.#source.take(end + nameEnd.length).slice(0, -nameEnd.length);
  }

  /** The same for a name that ends before a tag or a line break. White space may come before it. */
  #takeBareName(): string | undefined | null {
    this.#source.takeSpace();
    const text = this.#source.held.peek();
    const end = text.slice(0, nameLengthMax + 1).search(/[<\n]/);
    if (end === -1) return text.length > nameLengthMax ? null : undefined;
    return this.#source.take(end);
  }

  #readBetween(): 'again' | 'open' | 'ended' | 'refused' {
    this.#source.takeSpace();
    if (this.#source.held.isEmpty) return 'open';
    const isParameter = this.#source.takeTag(this.#syntax.parameterOpen);
    if (isParameter === true) {
      this.#state = 'parameter';
      return 'again';
    }
    const isEnd = this.#source.takeTag(this.#syntax.close);
    if (isEnd === true) {
      this.#begin();
      this.#source.arguments('}');
      this.#source.drop();
      return 'ended';
    }
    if (isParameter === undefined || isEnd === undefined) return 'open';
    // The model may have left out the closing tag.
    return this.#breakOff();
  }

  #begin(): void {
    if (this.#hasBegun) return;
    this.#hasBegun = true;
    this.#source.begin(this.#tool!.function.name);
    this.#source.arguments('{');
  }

  #readParameterName(): 'again' | 'open' | 'ended' | 'refused' {
    const name = this.#takeName(this.#syntax.parameterNameEnd);
    if (name === undefined) return 'open';
    if (name === null) return this.#breakOff();
    this.#parameter = name.trim();
    this.#state = 'open';
    return 'again';
  }

  /** What follows belongs to no call. */
  #breakOff(): 'ended' | 'refused' {
    if (!this.#hasBegun) return 'refused';
    this.#source.arguments('}');
    return 'ended';
  }

  #readValueOpen(): 'again' | 'open' | 'ended' | 'refused' {
    const { valueOpen } = this.#syntax;
    if (valueOpen !== undefined) {
      this.#source.takeSpace();
      if (this.#source.held.isEmpty) return 'open';
      const isOpen = this.#source.takeTag(valueOpen);
      if (isOpen === undefined) return 'open';
      if (!isOpen) return this.#breakOff();
    }
    this.#begin();
    this.#source.drop();
    this.#source.arguments(`${this.#given.size === 0 ? '' : ', '}${JSON.stringify(this.#parameter)}: `);
    this.#given.add(this.#parameter);
    const isText = isOnlyText(typesOfParameter(this.#tool!.function.parameters, this.#parameter));
    if (isText) this.#source.arguments('"');
    this.#state = isText ? 'text' : 'value';
    this.#hasLines = undefined;
    this.#lineBreak = '';
    this.#value = '';
    this.#strings = 'outside';
    return 'again';
  }

  #readValue(): 'again' | 'open' {
    const { held } = this.#source;
    if (held.isEmpty) return 'open';
    if (this.#hasLines === undefined) {
      this.#hasLines = this.#syntax.hasLineBreaks && held.peek().startsWith('\n');
      this.#followsLineBreak = this.#hasLines;
      if (this.#hasLines) held.take(1);
    }
    const { at, length } = findValueEnd(held, this.#syntax, {
      hasLines: this.#hasLines,
      followsLineBreak: this.#followsLineBreak,
      canFollow: (name) => this.#canFollow(name),
      strings: this.#mustBeJson() ? this.#strings : undefined,
    });
    const taken = held.take(at);
    if (this.#mustBeJson()) this.#strings = afterJson(this.#strings, taken);
    this.#add(taken);
    if (length === undefined) return 'open';
    held.take(length);
    this.#endValue();
    this.#state = 'between';
    return 'again';
  }

  /** Whether a parameter of this name can follow one without a closing tag. */
  #canFollow(name: string): boolean {
    const { properties } = this.#tool!.function.parameters ?? {};
    return isJsonObject(properties) && Object.hasOwn(properties, name) && !this.#given.has(name);
  }

  /** The grammar of a strict tool allows tags inside of JSON. Other values are read as vLLM does: the first closing tag ends them. */
  #mustBeJson(): boolean {
    const { parameters, strict } = this.#tool!.function;
    return strict === true && this.#state === 'value' && !typesOfParameter(parameters, this.#parameter).has('string');
  }

  /** One line break after the opening tag and one before the closing tag belong to the tags. Texts are passed on as they come. */
  #add(text: string): void {
    if (text !== '') this.#followsLineBreak = text.endsWith('\n');
    if (!this.#syntax.hasLineBreaks) this.#value += text;
    else {
      const all = this.#lineBreak + text;
      this.#lineBreak = all.endsWith('\n') ? '\n' : '';
      this.#value += all.slice(0, all.length - this.#lineBreak.length);
    }
    if (this.#state !== 'text') return;
    this.#source.arguments(escaped(this.#value));
    this.#value = '';
  }

  #endValue(): void {
    if (this.#state === 'text') this.#source.arguments('"');
    else
      this.#source.arguments(asJson(this.#value, typesOfParameter(this.#tool!.function.parameters, this.#parameter)));
  }
}

/** Text inside a string of JSON. Pieces may cut a pair of surrogates, which `JSON.stringify` of a piece would escape. */
const escaped = (text: string): string =>
  // biome-ignore lint/suspicious/noControlCharactersInRegex: JSON escapes them.
  text.replace(/["\\\u0000-\u001f]/g, (letter) => JSON.stringify(letter).slice(1, -1));
