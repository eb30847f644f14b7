import type { EncodingVocab } from './encode-text.ts';

/** A job for the text thread. Plain data. */
export type TextJob = EncodeJob | RenderJob;

export interface EncodeJob {
  readonly kind: 'encode';
  /** Path of libllama, which this process has loaded. */
  readonly library: string;
  readonly vocab: EncodingVocab;
  readonly text: string;
  readonly addSpecial: boolean;
  readonly parseSpecial: boolean;
}

export interface RenderJob {
  readonly kind: 'render';
  readonly source: string;
  readonly bosToken: string;
  readonly eosToken: string;
  readonly messages: readonly object[];
  readonly options: object;
}

export type TextAnswer =
  | { readonly tokens: Int32Array }
  | { readonly text: string }
  /** The template refused the messages. */
  | { readonly templateError: string };
