import type { KvasirError } from '../base/errors.ts';
import type { KvIdentity } from '../connector/connector.ts';
import type { TierOrder, TierOrderAnswer } from '../connector/tier-orders.ts';
import type { KvCacheSpec } from '../core/kv-spec.ts';
import type { DraftRequest, StepResult } from '../core/step.ts';
import type { AdapterSource } from '../ggml/lora-adapter.ts';
import { decodeError, type ErrorMessage, encodeError } from './error-codec.ts';
import type { RankOutput, RankTimings, UpstreamOutput } from './rank.ts';
import type { StepMessage } from './step-codec.ts';

/** From the engine to a worker process. One step is in flight at a time. KV is never sent. */
export type ToWorker<Setup> =
  /** The first message, once. */
  | { readonly kind: 'open'; readonly setup: Setup }
  /** Sent before the hidden states, so that loads begin at once. `upstream` follows if `hasUpstream`. */
  | { readonly kind: 'step'; readonly step: StepMessage; readonly hasUpstream: boolean }
  /** Between steps; answered by `drafts`. */
  | { readonly kind: 'draft'; readonly requests: readonly DraftRequest[]; readonly count: number }
  | { readonly kind: 'upstream'; readonly output: UpstreamOutput }
  /** The rank before has failed: the step ends without an answer. */
  | { readonly kind: 'upstreamFailed' }
  /** Answered by `adapterLoaded` at any time. */
  | { readonly kind: 'loadAdapter'; readonly source: AdapterSource }
  | { readonly kind: 'unloadAdapter'; readonly digest: string }
  /** Answered by `administered` with the same id at any time. */
  | { readonly kind: 'administer'; readonly id: number; readonly order: TierOrder }
  /** Answered by `pong` at any time, also while a step is computed. */
  | { readonly kind: 'ping' }
  /** Answered by the end of the process. */
  | { readonly kind: 'close'; readonly timeoutMs: number };

export type FromWorker =
  | { readonly kind: 'progress'; readonly loadedBytes: number; readonly totalBytes: number }
  | { readonly kind: 'notice'; readonly message: string }
  | { readonly kind: 'ready'; readonly facts: RankFacts }
  | { readonly kind: 'openFailed'; readonly error: ErrorMessage }
  | { readonly kind: 'output'; readonly output: OutputMessage; readonly timings: RankTimings }
  | { readonly kind: 'drafts'; readonly drafts: readonly Int32Array[] }
  /**
   * `isComputing`: kernels run for the step in flight, or it waits for saves that it flushes. False while it waits for
   * loads or for the rank before.
   */
  | { readonly kind: 'pong'; readonly isComputing: boolean }
  /** `error`: the adapter is not loaded. */
  | { readonly kind: 'adapterLoaded'; readonly digest: string; readonly error?: ErrorMessage }
  | {
      readonly kind: 'administered';
      readonly id: number;
      readonly answer?: TierOrderAnswer;
      readonly error?: ErrorMessage;
    }
  /** Transfers have ended between steps. At most one until the next step. */
  | { readonly kind: 'wake' }
  /** The rank has failed, and the process ends. */
  | { readonly kind: 'broken'; readonly error: ErrorMessage };

export interface RankFacts {
  readonly kvCacheSpec: KvCacheSpec;
  readonly identity: KvIdentity;
  readonly attentionDescription: string;
}

/** A rank's output whose errors are data. */
export type OutputMessage = Omit<RankOutput, 'result'> & {
  readonly result: Omit<StepResult, 'failures'> & {
    readonly failures?: readonly { readonly sequence: number; readonly error: ErrorMessage }[];
  };
};

export function encodeOutput({ result, ...rest }: RankOutput): OutputMessage {
  const { failures, ...plain } = result;
  if (failures === undefined) return { ...rest, result: plain };
  return {
    ...rest,
    result: { ...plain, failures: failures.map(({ sequence, error }) => ({ sequence, error: encodeError(error) })) },
  };
}

export function decodeOutput({ result, ...rest }: OutputMessage): RankOutput {
  const { failures, ...plain } = result;
  if (failures === undefined) return { ...rest, result: plain };
  return {
    ...rest,
    result: {
      ...plain,
      // The error of a sequence is always from a catalogue.
      failures: failures.map(({ sequence, error }) => ({ sequence, error: decodeError(error) as KvasirError })),
    },
  };
}
