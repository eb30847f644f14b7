/** The answers of Ollama's API. Times are in nanoseconds. */
import type { JsonList, RawJson } from '../../http/json-pieces.ts';

export interface OllamaCall {
  readonly id: string;
  readonly function: { readonly index: number; readonly name: string; readonly arguments: RawJson<object> };
}

export interface OllamaMessage {
  readonly role: 'assistant';
  readonly content: string;
  readonly thinking?: string;
  readonly tool_calls?: readonly OllamaCall[];
}

interface OllamaEnd {
  /** `load`, `unload`: of a request without a prompt, which concerns the model only. */
  readonly done_reason: 'stop' | 'length' | 'load' | 'unload';
  readonly total_duration: number;
  readonly load_duration: number;
  readonly prompt_eval_count: number;
  readonly prompt_eval_duration: number;
  readonly eval_count: number;
  readonly eval_duration: number;
}

/** `bytes`: absent if the token has no text. */
export interface OllamaToken {
  readonly token: string;
  readonly logprob: number;
  readonly bytes?: readonly number[];
}

export interface OllamaLogprob extends OllamaToken {
  /** Absent unless `top_logprobs` is above 0. */
  readonly top_logprobs?: readonly OllamaToken[];
}

/** One line of a stream, or the whole answer. `/api/chat` has `message`, and `/api/generate` has `response` and `thinking`. */
export interface OllamaAnswer extends Partial<OllamaEnd> {
  readonly model: string;
  readonly created_at: string;
  readonly message?: OllamaMessage;
  readonly response?: string;
  readonly thinking?: string;
  readonly done: boolean;
  /** Of the tokens of this line. */
  readonly logprobs?: JsonList<OllamaLogprob>;
}

export interface OllamaError {
  readonly error: string;
}

/** A line of `/api/pull`. Bytes are those of all parts of the model. */
export interface OllamaProgress {
  readonly status: string;
  readonly digest?: string;
  readonly total?: number;
  readonly completed?: number;
}

export interface OllamaModelDetails {
  readonly parent_model: '';
  readonly format: 'gguf';
  readonly family: string;
  readonly families: readonly string[];
  readonly parameter_size: string;
  readonly quantization_level: string;
}

export interface OllamaModel {
  readonly name: string;
  readonly model: string;
  readonly modified_at: string;
  /** Bytes of the file. */
  readonly size: number;
  /** Names this version of the file: a digest of its path, size and time, not of its content. */
  readonly digest: string;
  readonly details: OllamaModelDetails;
}
