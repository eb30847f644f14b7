import { assert } from '../base/assert.ts';
import type { VocabPtr, VocabularyApi } from '../ggml/ffi.ts';
import { cutLongRuns } from './long-runs.ts';
import type { CutRule } from './pre-tokenizers.ts';
import { type SpecialTokens, splitAtSpecialTokens } from './special-tokens.ts';
import { type WordPieceOptions, WordPieces } from './word-piece.ts';

/** A vocabulary for encoding, as plain data, so that another thread can encode with the same vocabulary. */
export interface EncodingVocab {
  /** Valid in every thread of this process while the model is open. `llama_tokenize` only reads the vocabulary. */
  readonly pointer: VocabPtr;
  readonly cutRule: CutRule;
  /** Characters: tests lower it. */
  readonly runLengthMax: number;
  readonly specialTokens: SpecialTokens;
  /** libllama alone takes `</s>` for a control token (`vocabulary-check.ts`). */
  readonly hasEndTag: boolean;
  /** The tokens that `addSpecial` adds before and after a text. */
  readonly before: readonly number[];
  readonly after: readonly number[];
  /** Of BERT's vocabularies, whose texts libllama encodes wrongly. */
  readonly wordPiece?: WordPieceOptions;
}

/** Texts up to this number of characters are given to libllama as a whole, if they need no cut. */
const wholeTextMax = 8_192;

/**
 * Encodes texts, with one buffer for all. Both threads that encode use this class, so the tokens of a text do not
 * depend on the thread.
 */
export class TextEncoding {
  readonly #native: VocabularyApi;
  readonly #utf8 = new TextEncoder();
  #tokens = new Int32Array(1024);
  /** A thread encodes for one vocabulary, so the pointer is of the same vocabulary as long as it is the same. */
  #pieces: { readonly of: VocabPtr; readonly pieces: WordPieces } | undefined;

  constructor(native: VocabularyApi) {
    this.#native = native;
  }

  encode(vocab: EncodingVocab, text: string, addSpecial: boolean, parseSpecial: boolean): Int32Array {
    const pieces = this.#encodeParts(vocab, text, parseSpecial);
    const before = addSpecial ? vocab.before : [];
    const after = addSpecial ? vocab.after : [];
    const length = pieces.reduce((sum, piece) => sum + piece.length, before.length + after.length);
    const tokens = new Int32Array(length);
    let end = 0;
    for (const part of [before, ...pieces, after]) {
      tokens.set(part, end);
      end += part.length;
    }
    return tokens;
  }

  /**
   * Finds special tokens before it cuts the text: a cut within a token would lose it. In a long text that needs no cut,
   * libllama would take long to find many tokens.
   */
  #encodeParts(vocab: EncodingVocab, text: string, parseSpecial: boolean): Int32Array[] {
    const { pointer, specialTokens, hasEndTag, wordPiece } = vocab;
    if (wordPiece !== undefined) {
      const pieces = this.#piecesOf(pointer, wordPiece);
      return splitAtSpecialTokens(text, specialTokens, parseSpecial).map((part) =>
        Int32Array.from(typeof part === 'number' ? [part] : pieces.encode(part)),
      );
    }
    const cutsOf = (part: string): number[] => cutLongRuns(part, vocab.cutRule, vocab.runLengthMax);
    const needsSplit = text.length > wholeTextMax || (hasEndTag && text.includes('</s>'));
    if (!needsSplit && cutsOf(text).length === 0) return [this.#encodePiece(pointer, text, parseSpecial)];
    const parts = splitAtSpecialTokens(text, specialTokens, parseSpecial);
    return parts.flatMap((part) => {
      if (typeof part === 'number') return [Int32Array.of(part)];
      const cuts = cutsOf(part);
      return [0, ...cuts].map((start, i) => this.#encodePiece(pointer, part.slice(start, cuts[i]), false));
    });
  }

  #piecesOf(pointer: VocabPtr, options: WordPieceOptions): WordPieces {
    if (this.#pieces?.of !== pointer) {
      const pieces = new WordPieces(options, (id) => this.#native.llama_vocab_get_text(pointer, id));
      this.#pieces = { of: pointer, pieces };
    }
    return this.#pieces.pieces;
  }

  #encodePiece(vocab: VocabPtr, text: string, parseSpecial: boolean): Int32Array {
    // TextEncoder writes U+FFFD for a lone surrogate.
    const bytes = this.#utf8.encode(text);
    const tokenize = (): number =>
      this.#native.llama_tokenize(vocab, bytes, bytes.length, this.#tokens, this.#tokens.length, false, parseSpecial);
    let count = tokenize();
    if (count < 0) {
      // A negative result is minus the number of tokens: they did not fit.
      this.#tokens = new Int32Array(Math.max(-count, this.#tokens.length * 2));
      count = tokenize();
    }
    assert(count >= 0, `llama_tokenize returned ${count} for ${bytes.length} bytes`);
    return this.#tokens.slice(0, count);
  }
}
