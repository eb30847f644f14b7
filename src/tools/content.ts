import type { AnswerPart } from './tool.ts';

/** Content without the white space in front of a call: it waits until other content follows. */
export class Content {
  #space = '';

  add(text: string): AnswerPart[] {
    const all = this.#space + text;
    const visible = all.trimEnd();
    this.#space = all.slice(visible.length);
    return visible === '' ? [] : [{ kind: 'content', text: visible }];
  }

  /** A call follows. */
  dropSpace(): void {
    this.#space = '';
  }

  /** The answer has ended. `isWhole`: it has no calls, so its white space belongs to it. */
  end(isWhole: boolean): AnswerPart[] {
    const text = isWhole ? this.#space : '';
    this.#space = '';
    return text === '' ? [] : [{ kind: 'content', text }];
  }
}
