import { CallSource } from './call-source.ts';
import { Content } from './content.ts';
import { type ControlTags, HeldText } from './held-text.ts';
import { ObjectReader } from './object-reader.ts';
import type { AnswerParser, AnswerPart, Tool } from './tool.ts';

const message = '<|message|>';
const ends = ['<|end|>', '<|call|>', '<|return|>', '<|start|>'];

export interface HarmonyOptions {
  /** The prompt has the header of the answer already. */
  readonly beginsInContent?: boolean;
  readonly controlTags?: ControlTags | undefined;
}

/**
 * The format of gpt-oss: messages in channels.
 *
 *   <|channel|>analysis<|message|>reasoning<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{...}<|call|>
 *   <|channel|>final<|message|>content<|return|>
 */
export class HarmonyParser implements AnswerParser {
  readonly #held: HeldText;
  readonly #content = new Content();
  readonly #source: CallSource;
  #state: 'header' | 'reasoning' | 'content' | 'arguments' | 'other' = 'header';
  #header = '';
  #name = '';
  #object = new ObjectReader();
  #hasBegun: boolean = false;
  #hasMessages: boolean = false;
  #parts: AnswerPart[] = [];

  constructor(tools: readonly Tool[], { beginsInContent = false, controlTags }: HarmonyOptions = {}) {
    this.#held = new HeldText(controlTags);
    const offered = new Map(tools.map((tool) => [tool.function.name, tool]));
    this.#source = new CallSource(this.#held, this.#content, offered);
    if (beginsInContent) this.#state = 'content';
    this.#hasMessages = beginsInContent;
  }

  add(text: string, controls?: readonly number[]): AnswerPart[] {
    this.#held.add(text, controls);
    while (this.#state === 'header' ? this.#readHeader() : this.#readBody());
    return this.#takeParts();
  }

  end(isCut = false): AnswerPart[] {
    const held = this.#held.takeAll();
    if (this.#state === 'header') this.#source.content(this.#unread(this.#header + held, isCut));
    else if (!isCut) {
      this.#body(held);
      this.#endBody();
    }
    if (isCut) this.#source.drop();
    else this.#source.giveBack();
    return [...this.#takeParts(), ...this.#content.end(this.#source.count === 0)];
  }

  /** An answer without any header is content. The header of a message that was cut is nothing. */
  #unread(text: string, isCut: boolean): string {
    const isHeader = text.includes('<|') || (isCut && text.trim() === '<');
    return this.#hasMessages || isHeader ? '' : text;
  }

  #takeParts(): AnswerPart[] {
    this.#collect();
    const parts = this.#parts;
    this.#parts = [];
    return parts;
  }

  #collect(): void {
    this.#parts.push(...this.#source.takeParts());
  }

  #readHeader(): boolean {
    const { text, tag } = this.#held.takeUntil(message);
    this.#header += text;
    if (tag === undefined) return false;
    this.#hasMessages = true;
    const [, space, name] = /\bto=(functions\.)?([\w.-]+)/.exec(this.#header) ?? [];
    const channel = /<\|channel\|>\s*(\w+)/.exec(this.#header)?.[1];
    if (name !== undefined) {
      this.#source.wait(this.#header + message);
      this.#state = this.#source.tools.has(name) ? 'arguments' : space === undefined ? 'other' : 'content';
      if (this.#state === 'content') this.#source.giveBack();
      // A tool that OpenAI's models know, such as `python`, and that was not offered.
      if (this.#state === 'other') this.#source.drop();
      this.#name = name;
      this.#object = new ObjectReader();
      this.#hasBegun = false;
    } else this.#state = channel === 'analysis' ? 'reasoning' : 'content';
    this.#header = '';
    return true;
  }

  #readBody(): boolean {
    const { text, tag } = this.#held.takeUntil(...ends);
    this.#body(text);
    if (tag === undefined) return false;
    this.#endBody();
    this.#state = 'header';
    return true;
  }

  #body(text: string): void {
    if (this.#state === 'arguments') this.#readArguments(text);
    else if (this.#state === 'content') this.#source.content(text);
    else if (this.#state === 'reasoning' && text !== '') {
      this.#collect();
      this.#parts.push({ kind: 'reasoning', text });
    }
  }

  /** A message to a function is a call if an object begins it. */
  #readArguments(text: string): void {
    const rest = this.#object.state === 'maybe' ? text.trimStart() : text;
    const used = this.#object.add(rest);
    if (!this.#hasBegun) this.#source.wait(text.slice(0, text.length - rest.length + used));
    if (this.#object.state === 'maybe') return;
    if (this.#object.state === 'refused') {
      this.#source.giveBack();
      this.#state = 'content';
    } else this.#begin();
    this.#source.content(rest.slice(used));
  }

  #begin(): void {
    if (!this.#hasBegun) this.#source.begin(this.#name);
    this.#hasBegun = true;
    this.#source.arguments(this.#object.takeJson());
  }

  /** A message without text has no arguments. */
  #endBody(): void {
    if (this.#state !== 'arguments') return;
    if (this.#hasBegun || this.#object.isEmpty) {
      const isEmpty = this.#object.isEmpty;
      this.#object.end();
      this.#begin();
      if (isEmpty) this.#source.arguments('{}');
    } else this.#source.giveBack();
  }
}
