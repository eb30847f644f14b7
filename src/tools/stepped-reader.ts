import type { CallReader } from './marked-parser.ts';

/** `again`: another step can be taken. The others are the answers of `CallReader.read`. */
export type StepState = 'again' | 'open' | 'ended' | 'refused';

/** Reads calls in steps. A step may leave a part of the text to another reader; the next step follows when that part has ended. */
export abstract class SteppedReader implements CallReader {
  #part: CallReader | undefined;

  read(): 'open' | 'ended' | 'refused' {
    for (;;) {
      const state = this.#part === undefined ? this.step() : this.#readPart(this.#part);
      if (state !== 'again') return state;
    }
  }

  end(isCut: boolean): void {
    this.#part?.end?.(isCut);
  }

  protected abstract step(): StepState;

  protected leaveTo(part: CallReader): 'again' {
    this.#part = part;
    return 'again';
  }

  #readPart(part: CallReader): StepState {
    const state = part.read();
    if (state !== 'ended') return state;
    this.#part = undefined;
    return 'again';
  }
}
