import { readExactJson } from '../base/exact-json.ts';
import { isJsonObject } from '../base/json.ts';
import { type CallSource, nameLengthMax } from './call-source.ts';
import { isSpace, ObjectReader } from './object-reader.ts';

/** The names under which models write the arguments of a call. */
const argumentNames = new Set(['arguments', 'parameters']);
/** Members that a call may have besides. */
const otherNames = new Set(['id', 'type']);
const memberNames = ['name', ...argumentNames, ...otherNames];

/**
 * Reads one JSON object `{"name": ..., "arguments": {...}}`, in any order of its members. A call begins when the name is one of
 * an offered tool and the arguments begin as an object. From then on, the arguments are passed on as they come.
 */
export class JsonCall {
  readonly #source: CallSource;
  readonly #needsArguments: boolean;
  #state: State = 'start';
  #key = '';
  #token = '';
  #isEscaped: boolean = false;
  #name: string | undefined;
  #object: ObjectReader | undefined;
  /** Arguments that wait for the name, or for their second letter. */
  #arguments = '';
  #hasBegun: boolean = false;

  /** `needsArguments`: an object without arguments is no call. */
  constructor(source: CallSource, { needsArguments }: { readonly needsArguments: boolean }) {
    this.#source = source;
    this.#needsArguments = needsArguments;
  }

  /** `refused`: the text is no call. If a call had begun, it ends here. */
  read(): 'open' | 'ended' | 'refused' {
    while (this.#state !== 'ended' && this.#state !== 'refused') {
      if (this.#state === 'arguments') {
        if (!this.#readArguments()) return 'open';
        continue;
      }
      if (this.#source.held.isEmpty) return 'open';
      const letter = this.#source.held.peek()[0]!;
      const next = this.#next(letter);
      if (next === 'refused') this.#state = this.#hasBegun ? 'ended' : 'refused';
      else {
        if (next !== 'arguments') this.#source.take(1);
        this.#state = next;
        if (next === 'ended') this.#close();
      }
    }
    return this.#state;
  }

  /** The state after the letter. */
  #next(letter: string): State {
    switch (this.#state) {
      case 'start':
        return letter === '{' ? 'key or end' : 'refused';
      case 'key or end':
      case 'key':
        if (isSpace(letter)) return this.#state;
        if (letter === '"') return this.#begin('in key');
        return letter === '}' && this.#state === 'key or end' ? this.#endState() : 'refused';
      case 'in key':
        return this.#inString(letter, 'in key', 'colon');
      case 'colon':
        if (isSpace(letter)) return 'colon';
        return letter === ':' ? 'value' : 'refused';
      case 'value':
        if (isSpace(letter)) return 'value';
        return this.#firstOfValue(letter);
      case 'in string':
        return this.#inString(letter, 'in string', 'after value');
      case 'in word':
        if (/[\w.+-]/.test(letter)) return 'in word';
        return this.#afterValue(letter);
      default:
        return this.#afterValue(letter);
    }
  }

  #begin(state: 'in key' | 'in string'): State {
    this.#token = '"';
    this.#isEscaped = false;
    return state;
  }

  #inString(letter: string, state: 'in key' | 'in string', after: 'colon' | 'after value'): State {
    this.#token += letter;
    // Only arguments may be long.
    if (this.#token.length > nameLengthMax && !(state === 'in string' && argumentNames.has(this.#key)))
      return 'refused';
    if (!this.#hasBegun && !this.#canBeName(state)) return 'refused';
    if (this.#isEscaped) this.#isEscaped = false;
    else if (letter === '\\') this.#isEscaped = true;
    else if (letter === '"') return this.#endString(after);
    return state;
  }

  /** Whether the text so far may become a name that a call can have there. So other JSON is shown as it comes, and when it is cut. */
  #canBeName(state: 'in key' | 'in string'): boolean {
    if (this.#token.includes('\\') || (state === 'in string' && this.#key !== 'name')) return true;
    const names = state === 'in key' ? memberNames : [...this.#source.tools.keys()];
    return names.some((name) => `"${name}"`.startsWith(this.#token));
  }

  #endString(after: 'colon' | 'after value'): State {
    const text = stringOf(this.#token);
    if (text === undefined) return 'refused';
    if (after === 'colon') {
      this.#key = text;
      return this.#hasBegun || text === 'name' || argumentNames.has(text) || otherNames.has(text) ? 'colon' : 'refused';
    }
    if (this.#hasBegun || otherNames.has(this.#key)) return 'after value';
    if (this.#key === 'name') return this.#endName(text);
    return this.#endTextArguments(text);
  }

  #endName(name: string): State {
    if (this.#name !== undefined || !this.#source.tools.has(name)) return 'refused';
    this.#name = name;
    if (this.#arguments !== '') this.#beginCall();
    return 'after value';
  }

  /** Some models write the arguments as a text that has JSON in it. */
  #endTextArguments(text: string): State {
    if (this.#arguments !== '' || !isObjectText(text)) return 'refused';
    this.#arguments = text;
    if (this.#name !== undefined) this.#beginCall();
    return 'after value';
  }

  #firstOfValue(letter: string): State {
    if (letter === '"') return this.#begin('in string');
    if (argumentNames.has(this.#key) && !this.#hasBegun) {
      if (letter !== '{' || this.#arguments !== '') return 'refused';
      this.#object = new ObjectReader();
      return 'arguments';
    }
    return otherNames.has(this.#key) && /[\w-]/.test(letter) ? 'in word' : 'refused';
  }

  #afterValue(letter: string): State {
    if (isSpace(letter)) return 'after value';
    if (letter === ',') return 'key';
    return letter === '}' ? this.#endState() : 'refused';
  }

  #endState(): State {
    if (this.#hasBegun) return 'ended';
    return this.#name !== undefined && !this.#needsArguments ? 'ended' : 'refused';
  }

  /** The closing brace was read. */
  #close(): void {
    if (!this.#hasBegun) {
      this.#arguments = '{}';
      this.#beginCall();
    }
    this.#source.drop();
  }

  /** Whether the arguments have ended. */
  #readArguments(): boolean {
    const object = this.#object!;
    const { held } = this.#source;
    const used = object.add(held.peek());
    if (this.#hasBegun) held.take(used);
    else this.#source.take(used);
    this.#pass(object.takeJson());
    if (object.state === 'refused') this.#state = 'refused';
    if (object.state === 'maybe' || object.state === 'refused') return object.state === 'refused';
    if (!this.#hasBegun && this.#name !== undefined) this.#beginCall();
    if (object.state === 'inside') return false;
    this.#state = object.state === 'ended' ? 'after value' : this.#hasBegun ? 'ended' : 'refused';
    return true;
  }

  #pass(json: string): void {
    if (this.#hasBegun) this.#source.arguments(json);
    else this.#arguments += json;
  }

  /** Completes the arguments of a call whose end the model has left out. */
  end(isCut: boolean): void {
    if (isCut || !this.#hasBegun) return;
    this.#object?.end();
    this.#pass(this.#object?.takeJson() ?? '');
    this.#source.drop();
  }

  #beginCall(): void {
    this.#hasBegun = true;
    this.#source.begin(this.#name!);
    this.#source.arguments(this.#arguments);
  }
}

type State =
  | 'start'
  | 'key or end'
  | 'key'
  | 'in key'
  | 'colon'
  | 'value'
  | 'in string'
  | 'in word'
  | 'arguments'
  | 'after value'
  | 'ended'
  | 'refused';

function stringOf(token: string): string | undefined {
  try {
    const value = readExactJson(token);
    return typeof value === 'string' ? value : undefined;
  } catch {
    return undefined;
  }
}

function isObjectText(text: string): boolean {
  try {
    return isJsonObject(readExactJson(text));
  } catch {
    return false;
  }
}
