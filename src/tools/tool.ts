/** Functions that a model may call, and the calls in its output. Names are those of OpenAI's API. */
import type { JsonObject } from '../base/json.ts';

/**
 * A function that the model may call.
 *
 * ```ts
 * const weather: Tool = {
 *   type: 'function',
 *   function: {
 *     name: 'weather',
 *     parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
 *   },
 * };
 * ```
 */
export interface Tool {
  readonly type: 'function';
  readonly function: {
    readonly name: string;
    readonly description?: string;
    /** JSON schema of the arguments. */
    readonly parameters?: JsonObject;
    /** Refuses schemas that cannot be kept. Templates do not see it. */
    readonly strict?: boolean;
  };
}

/** A call in an earlier answer of the model. */
export interface ToolCall {
  readonly id: string;
  readonly name: string;
  /** JSON, as the model wrote it. */
  readonly arguments: string;
}

/**
 * A part of an answer. The name of a call comes once, before its arguments, which come in pieces. `index` numbers the calls
 * of the answer from 0. `id`: as the model wrote it, if its format has ids. `controls`: where control tokens begin in the text.
 */
export type AnswerPart =
  | { readonly kind: 'content'; readonly text: string; readonly controls?: readonly number[] }
  | { readonly kind: 'reasoning'; readonly text: string }
  | { readonly kind: 'call'; readonly index: number; readonly name: string; readonly id?: string }
  | { readonly kind: 'arguments'; readonly index: number; readonly text: string };

/** Reads the text of one answer, in pieces of any length: the parts do not depend on the lengths. */
export interface AnswerParser {
  /** `controls`: where the texts of control tokens begin in this piece. */
  add(text: string, controls?: readonly number[]): AnswerPart[];
  /**
   * The answer has ended. `isCut`: not by the model, as at the limit of tokens. Then text that may be a part of a call or of a tag is left
   * out: the tokens that would have decided are missing.
   */
  end(isCut?: boolean): AnswerPart[];
}
