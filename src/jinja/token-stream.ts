import { TemplateSyntaxError } from './errors.ts';
import type { Token } from './lexer.ts';

/** The tokens of a template, one after the other. */
export class TokenStream {
  readonly #tokens: readonly Token[];
  #at = 0;

  constructor(tokens: readonly Token[]) {
    this.#tokens = tokens;
  }

  get current(): Token {
    return this.#tokens[this.#at]!;
  }

  get following(): Token {
    return this.#tokens[this.#at + 1] ?? this.current;
  }

  next(): Token {
    const token = this.current;
    if (token.kind !== 'eof') this.#at++;
    return token;
  }

  isOperator(text: string): boolean {
    return this.current.kind === 'operator' && this.current.text === text;
  }

  isName(text: string): boolean {
    return this.current.kind === 'name' && this.current.text === text;
  }

  isEnd(): boolean {
    return this.current.kind === 'end' || this.current.kind === 'eof';
  }

  skipOperator(text: string): boolean {
    const isThere = this.isOperator(text);
    if (isThere) this.next();
    return isThere;
  }

  skipName(text: string): boolean {
    const isThere = this.isName(text);
    if (isThere) this.next();
    return isThere;
  }

  expectOperator(text: string): void {
    if (!this.skipOperator(text)) throw this.unexpected(`'${text}'`);
  }

  expectName(text: string): void {
    if (!this.skipName(text)) throw this.unexpected(`'${text}'`);
  }

  name(): string {
    if (this.current.kind !== 'name') throw this.unexpected('a name');
    return this.next().text;
  }

  /** The end of a statement or an expression. */
  expectEnd(): void {
    if (this.current.kind !== 'end') throw this.unexpected('the end of the tag');
    this.next();
  }

  unexpected(wanted: string): TemplateSyntaxError {
    return this.error(`expected ${wanted}, got ${this.#described()}`);
  }

  error(message: string): TemplateSyntaxError {
    return new TemplateSyntaxError(message, this.current.line);
  }

  #described(): string {
    const { kind, text } = this.current;
    return kind === 'eof' ? 'the end of the template' : `'${text}'`;
  }
}
