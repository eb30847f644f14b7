import { pythonToJson } from './python-values.ts';

/** What may follow where the object has been read so far. */
type Place = 'key' | 'colon' | 'value' | 'after';

/**
 * Reads one JSON object in text that comes in pieces, and gives its JSON. What JSON allows is given as it was written. Mistakes that models
 * make are repaired, because a client must be able to parse the arguments of a call: raw line breaks in texts, unknown escapes,
 * `True` and `None`, commas at the end, texts in single quotes, names and texts without quotes.
 */
export class ObjectReader {
  #state: 'start' | 'first' | 'inside' | 'ended' | 'broken' | 'refused' = 'start';
  /** The brackets that are open. */
  readonly #open: ('{' | '[')[] = [];
  #place: Place = 'key';
  /** The quote of the text that is being read. */
  #quote = '';
  /** An escape in a text that is not complete. */
  #escape = '';
  /** A value or name without quotes that is not complete. */
  #word = '';
  /** A comma, and white space behind it: they are left out at the end of an object or list. */
  #comma = '';
  #json = '';

  /**
   * `maybe`: the text so far can begin an object. `inside`: it has begun one. `ended`: the object is complete. `broken`: it cannot go on
   * with this text; its JSON was completed. `refused`: the text begins no object.
   */
  get state(): 'maybe' | 'inside' | 'ended' | 'broken' | 'refused' {
    return this.#state === 'start' || this.#state === 'first' ? 'maybe' : this.#state;
  }

  /** Whether no text of an object has come. */
  get isEmpty(): boolean {
    return this.#state === 'start';
  }

  /** Takes the JSON of the text that was read. */
  takeJson(): string {
    const json = this.#json;
    this.#json = '';
    return json;
  }

  /** Reads up to the end of the object. Returns the number of UTF-16 units that belong to it. */
  add(text: string): number {
    let used = 0;
    while (used < text.length && this.#read(text[used]!)) used++;
    return used;
  }

  /** No text follows: the JSON is completed. */
  end(): void {
    if (this.#state !== 'inside') return;
    this.#complete();
    this.#state = 'ended';
  }

  /** Whether the letter belongs to the object. */
  #read(letter: string): boolean {
    switch (this.#state) {
      case 'start':
        if (letter !== '{') return this.#refuse();
        this.#state = 'first';
        return this.#push('{');
      case 'first':
        if (isSpace(letter)) return this.#write(letter);
        if (letter !== '"' && letter !== '}') return this.#refuse();
        this.#state = 'inside';
        return this.#readInside(letter);
      case 'inside':
        return this.#readInside(letter);
      default:
        return false;
    }
  }

  #refuse(): false {
    this.#state = 'refused';
    return false;
  }

  #write(json: string): true {
    this.#json += json;
    return true;
  }

  #readInside(letter: string): boolean {
    if (this.#quote !== '') return this.#readText(letter);
    if (this.#word !== '') {
      if (!endsWord(letter, this.#place)) {
        this.#word += letter;
        return true;
      }
      this.#endWord();
    }
    if (isSpace(letter)) return this.#comma === '' ? this.#write(letter) : this.#wait(letter);
    if (letter === '}' || letter === ']') return this.#close(letter);
    switch (this.#place) {
      case 'colon':
        if (letter !== ':') return this.#break();
        this.#place = 'value';
        return this.#write(letter);
      case 'after':
        if (letter === ',') return this.#wait(letter);
        // A comma was left out.
        if (this.#comma === '' && letter !== '"') return this.#break();
        if (this.#comma === '') this.#comma = ',';
        return this.#next(letter);
      default:
        return this.#begin(letter);
    }
  }

  #wait(letter: string): true {
    if (letter !== ',' || this.#comma === '') this.#comma += letter;
    return true;
  }

  /** The next member or item. */
  #next(letter: string): boolean {
    this.#write(this.#comma);
    this.#comma = '';
    this.#place = this.#open.at(-1) === '{' ? 'key' : 'value';
    return this.#begin(letter);
  }

  /** A name or a value begins. */
  #begin(letter: string): boolean {
    if (letter === '"' || letter === "'") {
      this.#quote = letter;
      return this.#write('"');
    }
    if (this.#place === 'value' && (letter === '{' || letter === '[')) return this.#push(letter);
    if ('{[<,:'.includes(letter)) return this.#break();
    this.#word = letter;
    return true;
  }

  #push(bracket: '{' | '['): true {
    this.#open.push(bracket);
    this.#place = bracket === '{' ? 'key' : 'value';
    return this.#write(bracket);
  }

  #close(letter: '}' | ']'): boolean {
    if (this.#open.at(-1) !== (letter === '}' ? '{' : '[')) return this.#break();
    this.#endMember();
    // White space behind a comma that is left out stays.
    this.#write(this.#comma.slice(1) + letter);
    this.#comma = '';
    this.#pop();
    return true;
  }

  #pop(): void {
    this.#open.pop();
    this.#place = 'after';
    if (this.#open.length === 0) this.#state = 'ended';
  }

  #readText(letter: string): boolean {
    if (this.#escape !== '') {
      const json = escapeAsJson(this.#escape + letter);
      if (json === undefined) this.#escape += letter;
      else this.#endEscape(json);
      if (json !== '') return true;
    }
    if (letter === '\\') this.#escape = letter;
    else if (letter === this.#quote) this.#endText();
    else this.#write(letter === '"' ? '\\"' : asTextOfJson(letter));
    return true;
  }

  /** `json`: empty if the escape was none; then it stands for itself. */
  #endEscape(json: string): void {
    this.#write(json === '' ? asTextOfJson(this.#escape) : json);
    this.#escape = '';
  }

  #endText(): void {
    this.#quote = '';
    this.#write('"');
    this.#endValue();
  }

  #endWord(): void {
    const word = this.#word.trimEnd();
    const space = this.#word.slice(word.length);
    this.#word = '';
    this.#write((this.#place === 'key' ? JSON.stringify(word) : wordAsJson(word)) + space);
    this.#endValue();
  }

  #endValue(): void {
    this.#place = this.#place === 'key' ? 'colon' : 'after';
  }

  /** A value that was left out is null. */
  #endMember(): void {
    if (this.#place === 'colon') this.#write(': null');
    else if (this.#place === 'value' && this.#open.at(-1) === '{') this.#write('null');
  }

  #break(): false {
    this.#complete();
    this.#state = 'broken';
    return false;
  }

  #complete(): void {
    if (this.#quote !== '') {
      this.#escape = '';
      this.#endText();
    }
    if (this.#word !== '') this.#endWord();
    this.#endMember();
    this.#comma = '';
    for (const bracket of this.#open.splice(0).reverse()) this.#write(bracket === '{' ? '}' : ']');
  }
}

/** White space of JSON. */
export const isSpace = (letter: string): boolean =>
  letter === ' ' || letter === '\n' || letter === '\t' || letter === '\r';

/** A text without quotes may have spaces in it. */
function endsWord(letter: string, place: Place): boolean {
  return ',}]\n<"'.includes(letter) || (place === 'key' && letter === ':');
}

function wordAsJson(word: string): string {
  if (/^(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)$/.test(word)) return word;
  if (/^-?(?:NaN|Infinity)$/.test(word)) return 'null';
  return pythonToJson(word) ?? JSON.stringify(word);
}

/** Text inside a text of JSON. */
const asTextOfJson = (text: string): string =>
  text === '\\' || text.length > 1 || text < ' ' ? JSON.stringify(text).slice(1, -1) : text;

/** The JSON of an escape; undefined: it is not complete; empty: its last letter does not belong to it. */
function escapeAsJson(written: string): string | undefined {
  const code = written.slice(1);
  if (code[0] === 'u') {
    if (/^u[\da-fA-F]{4}$/.test(code)) return written;
    return /^u[\da-fA-F]*$/.test(code) ? undefined : '';
  }
  if ('"\\/bfnrt'.includes(code)) return written;
  return code === "'" || code === '\n' ? asTextOfJson(code) : asTextOfJson(written);
}
