import { CallSource } from './call-source.ts';
import { Content } from './content.ts';
import { HeldText } from './held-text.ts';
import { ObjectScanner } from './object-scanner.ts';
import type { AnswerParser, AnswerPart, Tool } from './tool.ts';

const message = '<|message|>';
const ends = ['<|end|>', '<|call|>', '<|return|>', '<|start|>'];

/**
 * The format of gpt-oss: messages in channels.
 *
 *   <|channel|>analysis<|message|>reasoning<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{...}<|call|>
 *   <|channel|>final<|message|>content<|return|>
 */
export class HarmonyParser implements AnswerParser {
  readonly #held = new HeldText();
  readonly #content = new Content();
  readonly #source: CallSource;
  #state: 'header' | 'reasoning' | 'content' | 'arguments' = 'header';
  #header = '';
  #name = '';
  #object = new ObjectScanner();
  #arguments = '';
  #hasBegun: boolean = false;
  #hasMessages: boolean = false;
  #parts: AnswerPart[] = [];

  /** `beginsInContent`: the prompt has the header of the answer already. */
  constructor(tools: readonly Tool[], { beginsInContent = false }: { readonly beginsInContent?: boolean } = {}) {
    const offered = new Map(tools.map((tool) => [tool.function.name, tool]));
    this.#source = new CallSource(this.#held, this.#content, offered);
    if (beginsInContent) this.#state = 'content';
    this.#hasMessages = beginsInContent;
  }

  add(text: string): AnswerPart[] {
    this.#held.add(text);
    while (this.#state === 'header' ? this.#readHeader() : this.#readBody());
    return this.#takeParts();
  }

  end(isCut = false): AnswerPart[] {
    const held = this.#held.takeAll();
    if (this.#state === 'header') this.#source.content(this.#unread(this.#header + held, isCut));
    else if (!isCut) this.#body(held);
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
    const name = /\bto=(?:functions\.)?([\w.-]+)/.exec(this.#header)?.[1];
    const channel = /<\|channel\|>\s*(\w+)/.exec(this.#header)?.[1];
    if (name !== undefined) {
      this.#source.wait(this.#header + message);
      this.#state = this.#source.tools.has(name) ? 'arguments' : 'content';
      if (this.#state === 'content') this.#source.giveBack();
      this.#name = name;
      this.#object = new ObjectScanner();
      this.#arguments = '';
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
    else if (text !== '') {
      this.#collect();
      this.#parts.push({ kind: 'reasoning', text });
    }
  }

  /** A message to a function is a call if an object begins it. */
  #readArguments(text: string): void {
    let rest = text;
    if (this.#arguments === '' && !this.#hasBegun) {
      rest = text.trimStart();
      this.#source.wait(text.slice(0, text.length - rest.length));
    }
    const used = this.#object.add(rest);
    const found = rest.slice(0, used);
    if (this.#hasBegun) this.#source.arguments(found);
    else {
      this.#source.wait(found);
      this.#arguments += found;
      if (this.#object.state === 'maybe') return;
      if (this.#object.state === 'refused') {
        this.#source.giveBack();
        this.#state = 'content';
      } else this.#begin();
    }
    this.#source.content(rest.slice(used));
  }

  #begin(): void {
    this.#hasBegun = true;
    this.#source.begin(this.#name);
    this.#source.arguments(this.#arguments);
  }

  /** An empty message has no arguments. */
  #endBody(): void {
    if (this.#state !== 'arguments' || this.#hasBegun) return;
    if (this.#arguments === '') {
      this.#arguments = '{}';
      this.#begin();
    } else this.#source.giveBack();
  }
}
