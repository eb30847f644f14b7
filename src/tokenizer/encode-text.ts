import { assert } from '../base/assert.ts';
import type { NativeApi, VocabPtr } from '../ggml/ffi.ts';
import { cutLongRuns } from './long-runs.ts';

/** A vocabulary for encoding, as plain data, so that another thread can encode with the same vocabulary. */
export interface EncodingVocab {
  /** Valid in every thread of this process while the model is open. `llama_tokenize` only reads the vocabulary. */
  readonly pointer: VocabPtr;
  readonly isSentencePiece: boolean;
  /** The tokens that `addSpecial` adds before and after a text. */
  readonly before: readonly number[];
  readonly after: readonly number[];
}

type Tokenize = NativeApi['llama_tokenize'];

/**
 * Encodes texts, with one buffer for all. Both threads that encode use this class, so the tokens of a text do not
 * depend on the thread.
 */
export class TextEncoding {
  readonly #tokenize: Tokenize;
  readonly #utf8 = new TextEncoder();
  #tokens = new Int32Array(1024);

  constructor(tokenize: Tokenize) {
    this.#tokenize = tokenize;
  }

  encode(vocab: EncodingVocab, text: string, addSpecial: boolean, parseSpecial: boolean): Int32Array {
    const cuts = vocab.isSentencePiece ? [] : cutLongRuns(text);
    const pieces = [0, ...cuts].map((start, i) =>
      this.#encodePiece(vocab.pointer, text.slice(start, cuts[i]), parseSpecial),
    );
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

  #encodePiece(vocab: VocabPtr, text: string, parseSpecial: boolean): Int32Array {
    // TextEncoder writes U+FFFD for a lone surrogate.
    const bytes = this.#utf8.encode(text);
    const tokenize = (): number =>
      this.#tokenize(vocab, bytes, bytes.length, this.#tokens, this.#tokens.length, false, parseSpecial);
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
