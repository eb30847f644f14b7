/** How a text may continue, because its last tokens occurred before. */
export interface Continuation {
  /** How many of the last tokens occurred before. */
  readonly length: number;
  /** The tokens that followed there. Not empty. */
  readonly tokens: Int32Array;
  /** For each: of the occurrences of the tokens before it, the share that it followed. */
  readonly shares: Float64Array;
}

/** Looks for earlier occurrences of the last tokens of one text. */
export interface ContinuationFinder {
  find(): Continuation | undefined;
}
