import { CallParts } from './call-parts.ts';
import { HeldText } from './held-text.ts';
import { readSteps } from './read-steps.ts';
import type { AnswerParser, AnswerPart } from './tool.ts';

const marker = '<|python_tag|>';

/**
 * The format of Llama 3.1 and later, and of models that were told to answer with JSON: the whole answer is calls.
 *
 *   {"name": "f", "parameters": {...}}; {"name": "g", "parameters": {...}}
 *
 * An answer that begins otherwise, or with an object that has no name, is content.
 */
export class JsonParser implements AnswerParser {
  readonly #held = new HeldText();
  readonly #calls = new CallParts();
  #state: 'start' | 'call' | 'between' | 'content' = 'start';
  #before = '';

  add(text: string): AnswerPart[] {
    this.#held.add(text);
    return readSteps((parts) => this.#step(parts));
  }

  end(): AnswerPart[] {
    if (this.#state === 'call') return this.#calls.end(this.#before);
    const rest = this.#state === 'start' ? this.#before + this.#held.takeAll() : '';
    return rest === '' ? [] : [{ kind: 'content', text: rest }];
  }

  #step(parts: AnswerPart[]): boolean {
    if (this.#state === 'call') return this.#readCall(parts);
    if (this.#state === 'content') {
      if (!this.#held.isEmpty) parts.push({ kind: 'content', text: this.#held.takeAll() });
      return false;
    }
    if (this.#state === 'between') {
      this.#held.take(/^[\s;,]*/.exec(this.#held.peek())![0].length);
      if (this.#held.isEmpty) return false;
      this.#before = '';
      this.#state = this.#held.startsWith('{') === true ? 'call' : 'content';
      return true;
    }
    return this.#start();
  }

  #start(): boolean {
    this.#before += this.#held.takeSpace();
    const isMarked = this.#held.startsWith(marker);
    if (isMarked === true) {
      this.#held.take(marker.length);
      return true;
    }
    if (this.#held.isEmpty || isMarked === undefined) return false;
    if (this.#held.startsWith('{') === true) this.#state = 'call';
    else {
      const rest = this.#before + this.#held.takeAll();
      this.#held.add(rest);
      this.#state = 'content';
    }
    return true;
  }

  #readCall(parts: AnswerPart[]): boolean {
    const { state, parts: found } = this.#calls.readObject(this.#held, this.#before);
    parts.push(...found);
    if (state === 'ended') this.#state = 'between';
    if (state === 'invalid') this.#state = 'content';
    return state !== 'open';
  }
}
