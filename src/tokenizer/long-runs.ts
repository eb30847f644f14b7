import type { CutRule } from './pre-tokenizers.ts';

/**
 * Far more than the characters of any word, and far fewer than overflow the stack of C functions: a match takes 352
 * bytes per character on x64, and the stack has 16 MiB (`koffi-config.ts`).
 */
export const RUN_LENGTH_MAX = 32_000;
/** The time for white space under the rule `spaces` grows with this number. */
export const SLOW_SPACES_MIN = 64;

/**
 * The offsets at which a text must be cut, so that no match of libllama's pre-tokenizer is longer than `lengthMax` characters.
 * Real texts have no match of RUN_LENGTH_MAX. The tokens at a cut may differ from llama.cpp's.
 */
export function cutLongRuns(text: string, rule: CutRule, lengthMax = RUN_LENGTH_MAX): number[] {
  const cuts: number[] = [];
  if (rule === 'never' || (rule !== 'spaces' && text.length <= lengthMax)) return cuts;
  let cut = nextCut(text, 0, rule, lengthMax);
  for (; cut !== undefined; cut = nextCut(text, cut, rule, lengthMax)) cuts.push(cut);
  return cuts;
}

/** The first cut after `from`, where a match begins. Undefined: the rest needs none. */
function nextCut(text: string, from: number, rule: CutRule, lengthMax: number): number | undefined {
  const matches = new OpenMatches();
  const words = rule === 'words' ? new OpenWords() : undefined;
  for (let at = from; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (rule === 'spaces' && !isSpace(code) && matches.spaces(at) >= SLOW_SPACES_MIN && !takesSpace(code)) return at;
    matches.add(at, code);
    words?.add(at, code);
    // No cut within a character.
    if (isLowSurrogate(code)) continue;
    if (matches.length(at) > lengthMax) return at;
    if (words !== undefined && words.length(at) > lengthMax) return words.cut(at);
  }
  return undefined;
}

/**
 * The longest matches that the current character may belong to:
 *
 *     [white space]+     [other characters]+[\r\n/]*
 *
 * A slash after a line end may belong to the second match, or begin one itself.
 */
class OpenMatches {
  /** Undefined: the current character is no white space. */
  #spaceStart: number | undefined;
  /** Undefined: the current character is white space. */
  #runStart: number | undefined;
  /** Of the second match; undefined: there is none. */
  #textStart: number | undefined;
  #isInLineEnds: boolean = false;

  add(at: number, code: number): void {
    if (isSpace(code)) {
      this.#spaceStart ??= at;
      this.#runStart = undefined;
      if (!isLineEnd(code)) this.#textStart = undefined;
      this.#isInLineEnds = this.#textStart !== undefined;
      return;
    }
    this.#spaceStart = undefined;
    this.#runStart ??= at;
    if (code === SLASH && this.#isInLineEnds) return;
    if (this.#textStart === undefined || this.#isInLineEnds) this.#textStart = this.#runStart;
    this.#isInLineEnds = false;
  }

  /** The white space before `at`, which is not added yet. */
  spaces(at: number): number {
    return at - (this.#spaceStart ?? at);
  }

  /** Of the longest match, with the character at `at`. */
  length(at: number): number {
    return at + 1 - Math.min(this.#spaceStart ?? at, this.#textStart ?? at);
  }
}

/** The longest match of words with single spaces between them: letters and marks, which may be all but ASCII. */
class OpenWords {
  #start: number | undefined;
  #lastSpace: number | undefined;
  #isAfterLetter: boolean = false;

  add(at: number, code: number): void {
    const isLetter = code >= 0x80 || isAsciiLetter(code);
    if (isLetter) this.#start ??= at;
    else if (code === SPACE && this.#isAfterLetter) this.#lastSpace = at;
    else {
      this.#start = undefined;
      this.#lastSpace = undefined;
    }
    this.#isAfterLetter = isLetter;
  }

  length(at: number): number {
    return at + 1 - (this.#start ?? at);
  }

  /** Between two words if there are two. */
  cut(at: number): number {
    return this.#lastSpace ?? at;
  }
}

const SPACE = 0x20;
const SLASH = 0x2f;

/** libllama's white space beyond ASCII. */
const otherSpaces = new Set('\u0085\u00a0\u1680\u2028\u2029\u202f\u205f\u3000');

const isSpace = (code: number): boolean =>
  code === SPACE ||
  (code >= 0x09 && code <= 0x0d) ||
  (code >= 0x80 && ((code >= 0x2000 && code <= 0x200a) || otherSpaces.has(String.fromCharCode(code))));

const isLineEnd = (code: number): boolean => code === 0x0a || code === 0x0d;

const isAsciiLetter = (code: number): boolean => (code >= 0x41 && code <= 0x5a) || (code >= 0x61 && code <= 0x7a);

const isLowSurrogate = (code: number): boolean => code >= 0xdc00 && code <= 0xdfff;

/** Whether DeepSeek's pre-tokenizer puts a space before this character into its word. It does so for more letters. */
const takesSpace = (code: number): boolean =>
  /[A-Za-zÀ-ÖØ-öø-ƺΑ-ΡΣ-ϵЀ-ҁҊ-ԯ!-/:-~！-／：-～]/.test(String.fromCharCode(code));
