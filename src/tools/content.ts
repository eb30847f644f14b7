import type { ControlledText } from './held-text.ts';
import type { AnswerPart } from './tool.ts';

/** Content without white space at its end: it waits until other content follows. */
export class Content {
  #space = '';

  add({ text, controls }: ControlledText): AnswerPart[] {
    const visible = text.trimEnd();
    const before = this.#space;
    if (visible === '') {
      this.#space += text;
      return [];
    }
    this.#space = text.slice(visible.length);
    const shown = { kind: 'content', text: before + visible } as const;
    return [controls.length === 0 ? shown : { ...shown, controls: controls.map((at) => before.length + at) }];
  }

  /** The answer has ended. `isWhole`: it has no calls, so its white space belongs to it. */
  end(isWhole: boolean): AnswerPart[] {
    const text = isWhole ? this.#space : '';
    this.#space = '';
    return text === '' ? [] : [{ kind: 'content', text }];
  }
}
