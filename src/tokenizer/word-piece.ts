/**
 * BERT's tokens as Hugging Face's tokenizers compute them. libllama's differ: it keeps only the first part of a letter that
 * NFD takes apart (all Korean words with the same first consonants are equal), and has no limit for the length of a word.
 */
import { accents, ideographs, later, punctuation, removed, spaces } from './word-piece-characters.ts';

/** Plain data of `EncodingVocab`. */
export interface WordPieceOptions {
  readonly lowercase: boolean;
  readonly stripAccents: boolean;
  readonly unknownId: number;
  /** The ids of control tokens, which texts have only by their names. */
  readonly tokenCount: number;
  readonly controlIds: readonly number[];
}

/** Longer words are unknown. In characters. */
const wordLengthMax = 100;
/** Marks the beginning of a word in GGUF. Parts of words that follow have no mark. */
const wordMark = '\u2581';

/** A lone surrogate is U+FFFD in UTF-8, which is removed. */
const removedPattern = new RegExp(`[\\p{Surrogate}${removed}]`, 'gu');
const spacesPattern = new RegExp(`[${spaces}]`, 'gu');
const ideographPattern = new RegExp(`[${ideographs}]`, 'gu');
const accentPattern = new RegExp(`[${accents}]`, 'gu');
const laterPattern = new RegExp(`([${later}])`, 'u');
const manyMarks = /\p{M}{1000}/u;
const someMarks = /\P{M}*\p{M}{0,1000}/gu;
const wordPattern = new RegExp(`[${punctuation}]|[^ ${punctuation}]+`, 'gu');

/** The words of a text, normalized. Punctuation and Chinese characters are words of one character. */
function wordsOf(text: string, { lowercase, stripAccents }: WordPieceOptions): readonly string[] {
  let normal = text.replace(removedPattern, '').replace(spacesPattern, ' ').replace(ideographPattern, ' $& ');
  if (stripAccents) normal = decomposed(normal).replace(accentPattern, '');
  // Each character by itself: a capital sigma has another form at the end of a word.
  if (lowercase) normal = normal.replaceAll('\u03a3', '\u03c3').toLowerCase();
  return normal.match(wordPattern) ?? [];
}

/**
 * NFD orders the marks after a letter in a time that is quadratic in their number. So texts are cut between many marks, which only the
 * order of marks that are kept may show.
 */
const normalized = (text: string): string =>
  manyMarks.test(text) ? text.replace(someMarks, (part) => part.normalize('NFD')) : text.normalize('NFD');

/** Characters that are newer than the tables of the tokenizers stay as they are, and marks are not ordered across them. */
const decomposed = (text: string): string =>
  laterPattern.test(text)
    ? text
        .split(laterPattern)
        .map((part, i) => (i % 2 === 0 ? normalized(part) : part))
        .join('')
    : normalized(text);

/** The tokens of words: from the left, the longest token that the word has there. */
export class WordPieces {
  readonly #options: WordPieceOptions;
  /** By the text of a token, with the mark at the beginning of a word. */
  readonly #ids = new Map<string, number>();
  readonly #lengthMax: number;

  constructor(options: WordPieceOptions, textOf: (id: number) => string) {
    this.#options = options;
    const control = new Set(options.controlIds);
    let lengthMax = 1;
    for (let id = 0; id < options.tokenCount; id++) {
      if (control.has(id)) continue;
      const text = textOf(id);
      this.#ids.set(text, id);
      lengthMax = Math.max(lengthMax, text.length);
    }
    this.#lengthMax = lengthMax;
  }

  encode(text: string): number[] {
    return wordsOf(text, this.#options).flatMap((word) => this.#encodeWord(word));
  }

  #encodeWord(word: string): number[] {
    const unknown = [this.#options.unknownId];
    // A character has one or two units.
    if (word.length > wordLengthMax && (word.length > 2 * wordLengthMax || [...word].length > wordLengthMax))
      return unknown;
    const tokens: number[] = [];
    for (let start = 0; start < word.length; ) {
      const found = this.#longestAt(word, start);
      if (found === undefined) return unknown;
      tokens.push(found.id);
      start = found.end;
    }
    return tokens;
  }

  #longestAt(word: string, start: number): { readonly id: number; readonly end: number } | undefined {
    const mark = start === 0 ? wordMark : '';
    // The text of a word's first token, U+2581 in the middle of a word is no token of parts that follow.
    const endMax = start > 0 && word.startsWith(wordMark, start) ? start + 1 : start + this.#lengthMax;
    for (let end = Math.min(word.length, endMax); end > start; end--) {
      const id = this.#ids.get(mark + word.slice(start, end));
      if (id !== undefined) return { id, end };
    }
    return undefined;
  }
}
