import type { AnswerPart } from './tool.ts';

/** Content without the white space in front of a call: it waits until other content follows. */
export class Content {
  #space = '';

  add(text: string): AnswerPart[] {
    const visible = text.trimEnd();
    const space = text.slice(visible.length);
    if (visible === '') {
      this.#space += space;
      return [];
    }
    const before = this.#space;
    this.#space = space;
    return [{ kind: 'content', text: before + visible }];
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
