/** The answers of llama-server's `/infill`. */
export interface InfillChunk {
  readonly index: 0;
  readonly content: string;
  /** Ids of the tokens; they are not sent. */
  readonly tokens: readonly [];
  readonly id_slot: 0;
  readonly stop: boolean;
  readonly tokens_predicted: number;
  /** Of the prompt. */
  readonly tokens_evaluated: number;
}

/** The last event of a stream, or the whole answer. */
export interface InfillAnswer extends InfillChunk {
  readonly model: string;
  readonly has_new_line: boolean;
  /** False: a prompt that is too long is an error. */
  readonly truncated: false;
  readonly stop_type: 'eos' | 'limit' | 'word';
  /** Empty unless a stop string has ended the text. */
  readonly stopping_word: string;
  /** Tokens of the prompt that were not computed. */
  readonly tokens_cached: number;
  readonly timings: InfillTimings;
}

export interface InfillTimings {
  /** Tokens of the prompt that were not computed. */
  readonly cache_n: number;
  /** Tokens of the prompt that were computed. */
  readonly prompt_n: number;
  readonly prompt_ms: number;
  readonly prompt_per_token_ms: number;
  readonly prompt_per_second: number;
  readonly predicted_n: number;
  readonly predicted_ms: number;
  readonly predicted_per_token_ms: number;
  readonly predicted_per_second: number;
}
