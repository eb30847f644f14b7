import type { CallSource } from './call-source.ts';
import type { ControlTags } from './held-text.ts';
import { JsonCall } from './json-call.ts';
import { type CallSyntax, MarkedParser } from './marked-parser.ts';
import { tagsOfThink } from './parse-thinking.ts';
import { SteppedReader, type StepState } from './stepped-reader.ts';
import type { Tool } from './tool.ts';

/**
 * Reads one or more JSON objects, or a list of them. What is between them is white space, commas and semicolons.
 * `ended`: at a place where the caller's closing tag can follow. `refused`: what follows is no call.
 */
export class JsonCalls extends SteppedReader {
  readonly #source: CallSource;
  readonly #needsArguments: boolean;
  #isList: boolean = false;
  #hasStarted: boolean = false;

  constructor(source: CallSource, options: { readonly needsArguments: boolean }) {
    super();
    this.#source = source;
    this.#needsArguments = options.needsArguments;
  }

  protected step(): StepState {
    this.#source.takeSpace();
    const { held } = this.#source;
    if (held.isEmpty) return 'open';
    const letter = held.peek()[0]!;
    if (letter === '{') {
      this.#hasStarted = true;
      return this.leaveTo(new JsonCall(this.#source, { needsArguments: this.#needsArguments }));
    }
    if (letter === '[' && !this.#hasStarted && !this.#isList) {
      this.#isList = true;
      this.#source.take(1);
    } else if (this.#hasStarted && (letter === ',' || letter === ';')) this.#source.take(1);
    else if (this.#hasStarted && this.#isList && letter === ']') {
      this.#isList = false;
      this.#source.take(1);
      this.#source.drop();
    } else return this.#hasStarted ? 'ended' : 'refused';
    return 'again';
  }
}

/**
 * The format of Llama 3.1 and later, and of models that were told to answer with JSON: the whole answer is calls.
 *
 *   {"name": "f", "parameters": {...}}; {"name": "g", "parameters": {...}}
 *
 * An answer that begins otherwise is content. So is an object without arguments: it may be an answer in JSON.
 */
const bareJson: CallSyntax = {
  markers: ['<|python_tag|>'],
  canBeginUnmarked: { after: tagsOfThink.close },
  reader(source) {
    const calls = new JsonCalls(source, { needsArguments: true });
    return {
      read() {
        const state = calls.read();
        // There is no closing tag, so what follows calls is content.
        return state === 'ended' ? 'refused' : state;
      },
    };
  },
};

export const jsonParser = (tools: readonly Tool[], controls?: ControlTags): MarkedParser =>
  new MarkedParser(bareJson, tools, controls);
