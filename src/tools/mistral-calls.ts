import { type CallSource, nameLengthMax } from './call-source.ts';
import type { ControlTags } from './held-text.ts';
import { JsonCalls } from './json-calls.ts';
import { type CallSyntax, MarkedParser } from './marked-parser.ts';
import { ObjectReader } from './object-reader.ts';
import { mistralThoughts } from './parse-thinking.ts';
import { SteppedReader, type StepState } from './stepped-reader.ts';
import type { Tool } from './tool.ts';

const marker = '[TOOL_CALLS]';
const idMarker = '[CALL_ID]';
const argumentsMarker = '[ARGS]';

/**
 * The formats of Mistral, from the oldest to the newest:
 *
 *   content [TOOL_CALLS][{"name": "f", "arguments": {...}}, ...]
 *   content [TOOL_CALLS]f[CALL_ID]123456789[ARGS]{...}[TOOL_CALLS]g[CALL_ID]...
 *   content [TOOL_CALLS]f[ARGS]{...}[TOOL_CALLS]g[ARGS]{...}
 */
class MistralCalls extends SteppedReader {
  readonly #source: CallSource;
  #state: 'begin' | 'after list' | 'name' | 'id' | 'arguments' = 'begin';
  #name = '';
  #id: string | undefined;
  readonly #object = new ObjectReader();
  #hasBegun: boolean = false;

  constructor(source: CallSource) {
    super();
    this.#source = source;
  }

  protected step(): StepState {
    if (this.#state === 'begin') return this.#begin();
    // There is no closing tag, so what follows calls is content.
    if (this.#state === 'after list') return 'refused';
    return this.#state === 'arguments' ? this.#readArguments() : this.#readName();
  }

  #begin(): 'again' | 'open' {
    this.#source.takeSpace();
    const { held } = this.#source;
    if (held.isEmpty) return 'open';
    if (!'[{'.includes(held.peek()[0]!)) {
      this.#state = 'name';
      return 'again';
    }
    this.#state = 'after list';
    return this.leaveTo(new JsonCalls(this.#source, { needsArguments: false }));
  }

  /** The name and the id end at a marker or at the arguments. */
  #readName(): 'again' | 'open' | 'refused' {
    const { held } = this.#source;
    const text = held.peek();
    const length = text.search(/[[{\n]/);
    if (length === -1) return text.length > nameLengthMax ? 'refused' : 'open';
    const rest = text.slice(length);
    const markers = this.#state === 'name' ? [idMarker, argumentsMarker] : [argumentsMarker];
    const tag = rest[0] === '{' ? '' : markers.find((candidate) => rest.startsWith(candidate));
    if (tag === undefined) return markers.some((candidate) => candidate.startsWith(rest)) ? 'open' : 'refused';
    if (length > nameLengthMax) return 'refused';
    const word = this.#source.take(length).trim();
    this.#source.take(tag.length);
    if (this.#state === 'id') this.#id = word;
    else if (this.#source.tools.has(word)) this.#name = word;
    else return 'refused';
    this.#state = tag === idMarker ? 'id' : 'arguments';
    return 'again';
  }

  #readArguments(): 'open' | 'ended' | 'refused' | 'again' {
    const { held } = this.#source;
    if (this.#object.state === 'maybe') this.#source.takeSpace();
    const used = this.#object.add(held.peek());
    if (this.#hasBegun) held.take(used);
    else this.#source.take(used);
    const { state } = this.#object;
    if (state === 'maybe') return 'open';
    if (state === 'refused') return 'refused';
    if (!this.#hasBegun) this.#source.begin(this.#name, this.#id);
    this.#hasBegun = true;
    this.#source.arguments(this.#object.takeJson());
    return state === 'inside' ? 'open' : 'ended';
  }

  override end(isCut: boolean): void {
    super.end(isCut);
    if (isCut || !this.#hasBegun) return;
    this.#object.end();
    this.#source.arguments(this.#object.takeJson());
  }
}

const mistral: CallSyntax = {
  markers: [marker],
  quotes: mistralThoughts,
  reader: (source) => new MistralCalls(source),
};

export const mistralParser = (tools: readonly Tool[], controls?: ControlTags): MarkedParser =>
  new MarkedParser(mistral, tools, controls);
