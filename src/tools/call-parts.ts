import { CallScanner } from './call-scanner.ts';
import type { HeldText } from './held-text.ts';
import type { AnswerPart } from './tool.ts';

/** The calls of one answer, numbered in their order. */
export class CallParts {
  #count = 0;
  #scanner: CallScanner | undefined;

  get count(): number {
    return this.#count;
  }

  /** A call whose name is known. Its index is that of the arguments that follow. */
  begin(name: string): AnswerPart {
    return { kind: 'call', index: this.#count++, name };
  }

  arguments(text: string): AnswerPart[] {
    return text === '' ? [] : [{ kind: 'arguments', index: this.#count - 1, text }];
  }

  /**
   * Reads a JSON object with name and arguments. `open`: it goes on in later text. `invalid`: it is no call, and its text was
   * given back as content behind `before`.
   */
  readObject(held: HeldText, before = ''): { readonly state: CallScanner['state']; readonly parts: AnswerPart[] } {
    this.#scanner ??= new CallScanner();
    const scanner = this.#scanner;
    const { used, found } = scanner.add(held.peek());
    held.take(used);
    const parts: AnswerPart[] = found.name === undefined ? [] : [this.begin(found.name)];
    if (found.arguments !== undefined) parts.push(...this.arguments(found.arguments));
    if (scanner.state === 'invalid' && !scanner.hasName) parts.push({ kind: 'content', text: before + scanner.raw });
    if (scanner.state !== 'open') this.#scanner = undefined;
    return { state: scanner.state, parts };
  }

  /** The answer has ended: an object that has no name yet is content. */
  end(before = ''): AnswerPart[] {
    const scanner = this.#scanner;
    this.#scanner = undefined;
    return scanner === undefined || scanner.hasName ? [] : [{ kind: 'content', text: before + scanner.raw }];
  }
}
