/**
 * Converts text to tokens and tokens to text, for one model. Synchronous (except `encodeInBackground`) and
 * deterministic. Token ids are those of the model's vocabulary; they are plain numbers, because callers and the model
 * provide them.
 *
 * An id outside `[0, vocabSize)` fails an assertion, because the engine has checked the ids of every prompt.
 */
export interface Tokenizer {
  /** Ids are `0 .. vocabSize - 1`; equals the length of a logits row. */
  readonly vocabSize: number;
  /** The largest number of bytes of a token: a text of B bytes has at least B / tokenBytesMax tokens. */
  readonly tokenBytesMax: number;
  /** The BOS token; absent if the vocabulary has none. */
  readonly bosTokenId?: number;
  /** The EOS token, which templates write; absent if the vocabulary has none. */
  readonly eosTokenId?: number;
  /** All tokens that end a completion (end of text, end of turn, ...), ascending; empty if the model has none. */
  readonly eosTokenIds: readonly number[];
  /** The tokens around the parts of a text with a gap; absent if the model was not trained to fill in the middle. */
  readonly fimTokens?: FimTokens;
  /** For rerankers without a template of their own. */
  readonly pairTokens: PairTokens;
  /** Whether unknown characters are encoded as tokens of a byte each. Then each invalid byte is one U+FFFD in decoded text. */
  readonly hasByteTokens?: boolean;
  /** A sentence for the log about a vocabulary whose tokens may be wrong; absent: none is known. */
  readonly warning?: string;

  /**
   * `addSpecial`: add BOS and EOS as the vocabulary says. `parseSpecial`: convert the names of control tokens
   * (`<|im_start|>`) to control tokens instead of plain characters; only for the text of a chat template. Lone
   * surrogates become U+FFFD. An empty text without BOS has no tokens.
   */
  encode(text: string, options?: EncodeOptions): Int32Array;
  /**
   * The same tokens, encoded on another thread: for long texts, which would block the event loop. Results come in the
   * order of the calls. Rejects with the signal's reason if the signal aborts, and if the tokenizer is closed.
   */
  encodeInBackground(text: string, options?: EncodeOptions, signal?: AbortSignal): Promise<Int32Array>;
  /**
   * The text of a sequence: the bytes of all tokens, decoded together as UTF-8. Invalid bytes become U+FFFD (`StreamDecoder`). Control
   * tokens are skipped unless `skipSpecialTokens` is false (default: true).
   */
  decode(tokens: ArrayLike<number>, options?: DecodeOptions): string;
  /** The same text in parts that take a few milliseconds each, so that callers can yield to the event loop. */
  decodeParts(tokens: ArrayLike<number>, options?: DecodeOptions): Iterable<string>;
  /**
   * The bytes of one token within a text (with a leading space), which may be a part of a UTF-8 character. Empty for a
   * control token unless `special` is true. Called for each output token, so implementations should cache the result.
   * The caller must not change the bytes.
   */
  tokenBytes(id: number, options?: TokenBytesOptions): Uint8Array;
  /** Whether the token is a control token, which has no text: BOS, end of turn, tool markers. */
  isControl(id: number): boolean;
  isEndOfGeneration(id: number): boolean;
  /** Frees native memory after the running `encodeInBackground` call. Idempotent. */
  close(): void;
}

/** Tokens around a query and a document in the prompt of a reranker. */
export interface PairTokens {
  readonly before: readonly number[];
  readonly between: readonly number[];
  readonly after: readonly number[];
}

/** Before the text in front of the gap, before the text behind it, and before the text that fills it. */
export interface FimTokens {
  readonly prefix: number;
  readonly suffix: number;
  readonly middle: number;
  /** Before the name of a repository, if the model was trained on whole repositories. */
  readonly repository?: number;
  /** Before the name of each file of a repository. */
  readonly file?: number;
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
  /** Whether the bytes of a control token are its name. Default false. */
  readonly special?: boolean;
}
