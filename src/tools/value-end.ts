import { nameLengthMax } from './call-source.ts';
import type { HeldText } from './held-text.ts';

/** The texts around the parts of a call. */
export interface TagSyntax {
  /** After the name of the function. Undefined: the name ends before a tag or a line break. */
  readonly nameEnd?: string;
  readonly parameterOpen: string;
  /** After the name of a parameter. */
  readonly parameterNameEnd: string;
  /** Between the name of a parameter and its value, perhaps after white space. */
  readonly valueOpen?: string;
  readonly valueClose: string;
  readonly close: string;
  /** Tags that end the call, and so a value whose closing tag was left out, each with what can follow it. */
  readonly ends: readonly { readonly tag: string; readonly before: readonly string[] }[];
  /** Whether one line break after the opening tag of a value and one before its closing tag belong to the tags. */
  readonly hasLineBreaks: boolean;
}

/** What is known of a value whose end is looked for. */
export interface OpenValue {
  /** It began with a line break, so the tags of the call begin lines. */
  readonly hasLines: boolean;
  /** The held text follows a line break. */
  readonly followsLineBreak: boolean;
  /** Whether a parameter of this name can follow. */
  canFollow(name: string): boolean;
  /** If the value must be JSON: where in it the held text begins. */
  readonly strings: StringState | undefined;
}

/** Of a place in JSON: outside of strings, inside of one, or after a backslash in one. */
export type StringState = 'outside' | 'inside' | 'escaped';

/** The state after some more JSON. */
export function afterJson(before: StringState, json: string): StringState {
  let state = before;
  for (let i = 0; i < json.length; i++) {
    const code = json.charCodeAt(i);
    if (state === 'escaped') state = 'inside';
    else if (code === 0x22) state = state === 'inside' ? 'outside' : 'inside';
    else if (code === 0x5c && state === 'inside') state = 'escaped';
  }
  return state;
}

/** `at`: the length of the text that belongs to the value for certain. `length`: of the closing tag; 0 if it was left out. */
export interface ValueEnd {
  readonly at: number;
  /** Undefined: more text decides. */
  readonly length?: number;
}

/**
 * Finds the end of a value. Values are not escaped, so tags can be a part of them. The closing tag ends a value, and where it was left
 * out, the tag of the next parameter or the end of the call. Inside of a string of JSON they end it only if no other end follows.
 */
export function findValueEnd(held: HeldText, syntax: TagSyntax, value: OpenValue): ValueEnd {
  return new ValueEndFinder(held, syntax, value).find();
}

class ValueEndFinder {
  readonly #held: HeldText;
  readonly #syntax: TagSyntax;
  readonly #value: OpenValue;
  readonly #text: string;

  constructor(held: HeldText, syntax: TagSyntax, value: OpenValue) {
    this.#held = held;
    this.#syntax = syntax;
    this.#value = value;
    this.#text = held.peek();
  }

  find(): ValueEnd {
    let inString: ValueEnd | undefined;
    let { strings } = this.#value;
    let seen = 0;
    for (let at = this.#text.indexOf('<'); at !== -1; at = this.#text.indexOf('<', at + 1)) {
      strings = strings && afterJson(strings, this.#text.slice(seen, at));
      seen = at;
      const isInside = strings !== undefined && strings !== 'outside';
      if (isInside && inString !== undefined) continue;
      const length = this.#lengthOfEnd(at);
      if (length === null) continue;
      if (!isInside) return length === undefined ? (inString ?? { at }) : { at, length };
      inString = { at, ...(this.#held.hasEnded && length !== undefined ? { length } : {}) };
    }
    return inString ?? { at: this.#text.length };
  }

  /** Of the closing tag; 0 if it was left out. Undefined: more text decides. Null: no end is here. */
  #lengthOfEnd(at: number): number | undefined | null {
    const isClose = this.#isClose(at);
    if (isClose === true) return this.#syntax.valueClose.length;
    if (isClose === undefined) return undefined;
    const isOther = this.#isNextParameter(at) ?? this.#undecided();
    if (isOther === true) return 0;
    const isEnd = this.#isEndOfCall(at);
    if (isEnd === true) return 0;
    return isOther === undefined || isEnd === undefined ? undefined : null;
  }

  /** Undefined, or false if no more text comes. */
  #undecided(): false | undefined {
    return this.#held.hasEnded ? false : undefined;
  }

  #startsWith(tag: string, at: number): boolean | undefined {
    return this.#held.startsWith(tag, at) ?? this.#undecided();
  }

  #beginsLine(at: number): boolean {
    return at === 0 ? this.#value.followsLineBreak : this.#text[at - 1] === '\n';
  }

  /** Whether one of the tags follows white space, or the end of the answer. */
  #isBefore(tags: readonly string[], at: number): boolean | undefined {
    const next = at + /^\s*/.exec(this.#text.slice(at))![0].length;
    if (next === this.#text.length) return this.#held.hasEnded ? true : undefined;
    const starts = tags.map((tag) => this.#startsWith(tag, next));
    return starts.includes(true) ? true : starts.includes(undefined) ? undefined : false;
  }

  #isClose(at: number): boolean | undefined {
    const { close, ends, hasLineBreaks, parameterOpen, valueClose } = this.#syntax;
    const starts = this.#startsWith(valueClose, at);
    if (starts !== true || !hasLineBreaks || !this.#value.hasLines || this.#beginsLine(at)) return starts;
    // Within a line it may be a part of the text.
    return this.#isBefore([parameterOpen, close, ...ends.map(({ tag }) => tag)], at + valueClose.length);
  }

  #isNextParameter(at: number): boolean | undefined {
    const { parameterNameEnd, parameterOpen, valueOpen } = this.#syntax;
    if (this.#value.hasLines && !this.#beginsLine(at)) return false;
    const starts = this.#startsWith(parameterOpen, at);
    if (starts !== true) return starts;
    const begin = at + parameterOpen.length;
    const length = this.#text.slice(begin, begin + nameLengthMax + parameterNameEnd.length).indexOf(parameterNameEnd);
    if (length === -1) return this.#text.length - begin > nameLengthMax ? false : this.#undecided();
    if (!this.#value.canFollow(this.#text.slice(begin, begin + length).trim())) return false;
    return valueOpen === undefined || this.#isBefore([valueOpen], begin + length + parameterNameEnd.length);
  }

  #isEndOfCall(at: number): boolean | undefined {
    for (const { tag, before } of this.#syntax.ends) {
      const starts = this.#startsWith(tag, at);
      if (starts === undefined) return undefined;
      if (!starts) continue;
      const isBefore = this.#isBefore(before, at + tag.length);
      if (isBefore !== false) return isBefore;
      // Other text follows. The tag is a part of the value if the value ends behind it in one of the other ways.
      for (let next = this.#text.indexOf('<', at + 1); next !== -1; next = this.#text.indexOf('<', next + 1)) {
        if (this.#isClose(next) === true || this.#isNextParameter(next) === true) return false;
      }
      return this.#held.hasEnded ? true : undefined;
    }
    return false;
  }
}
