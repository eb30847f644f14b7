/**
 * Text to tokens and back, for one model. Synchronous and deterministic. Token ids are those of the model's vocabulary;
 * they are plain numbers here because they come from callers as well as from the model.
 *
 * Any method given an id outside `[0, vocabSize)` crashes by assertion: the engine has checked the ids of every prompt.
 */
export interface Tokenizer {
  /** Ids are `0 .. vocabSize - 1`; equals the length of a logits row. */
  readonly vocabSize: number;
  /** No token stands for more bytes: a text of B bytes has at least B / tokenBytesMax tokens. */
  readonly tokenBytesMax: number;
  /** What goes first in a prompt when `addSpecial` asks for it; absent when the vocabulary has none. */
  readonly bosTokenId?: number;
  /** Every token that ends a completion (end of text, end of turn, ...), ascending; at least one, unless the model has none. */
  readonly eosTokenIds: readonly number[];
  /** The model's own chat template (Jinja), absent when the file carries none. */
  readonly chatTemplate?: string;

  /**
   * `addSpecial`: put BOS (and whatever else the model wants around a prompt) where the model wants it. `parseSpecial`:
   * read control tokens written in the text (`<|im_start|>`) as such instead of as plain characters; only for text
   * that a chat template rendered. Lone surrogates are read as U+FFFD. An empty text without BOS gives no tokens.
   */
  encode(text: string, options?: EncodeOptions): Int32Array;
  /**
   * The same tokens, encoded on a thread of its own: for long texts, which would block the event loop. Calls are
   * answered in their order. Rejects with the signal's reason when it aborts, and when the tokenizer is closed.
   */
  encodeInBackground(text: string, options?: EncodeOptions, signal?: AbortSignal): Promise<Int32Array>;
  /**
   * The text of a sequence: the bytes of all tokens, decoded once as UTF-8, where invalid bytes become U+FFFD.
   * Control tokens are left out unless `skipSpecialTokens` is false (it is true by default).
   */
  decode(tokens: ArrayLike<number>, options?: DecodeOptions): string;
  /** The same text in parts, each a few milliseconds of work: callers let the event loop turn between them. */
  decodeParts(tokens: ArrayLike<number>, options?: DecodeOptions): Iterable<string>;
  /**
   * The raw bytes of one token, as it stands in the middle of a text (a leading space is kept), possibly a part of a
   * UTF-8 character. Empty for a control token, unless `special` asks for its name. Called once per token that is
   * generated: implementations should cache. The caller must not write into it.
   */
  tokenBytes(id: number, options?: TokenBytesOptions): Uint8Array;
  /** Control tokens steer the model and are no text: BOS, end of turn, tool markers. */
  isControl(id: number): boolean;
  isEndOfGeneration(id: number): boolean;
  /** Frees native memory, after an encoding that is under way in the background. Idempotent. */
  close(): void;
}

export interface EncodeOptions {
  /** Default true. */
  readonly addSpecial?: boolean;
  /** Default false. */
  readonly parseSpecial?: boolean;
}

export interface DecodeOptions {
  /** Default true. */
  readonly skipSpecialTokens?: boolean;
}

export interface TokenBytesOptions {
  /** Whether a control token gives its name as bytes. Default false. */
  readonly special?: boolean;
}
