import { engineClosed } from '../core/errors.ts';
import type { FinishReason } from '../core/request.ts';
import type { ChatFinishReason } from './chat/chat-answer.ts';
import type { OutputDelta } from './contract.ts';
import { generationFailed } from './errors.ts';

/** Why a whole answer ended: by itself, or at the caller's limit. */
export type WholeReason = Extract<FinishReason, 'stop' | 'length'>;

type Finish = NonNullable<OutputDelta['finish']>;

/** A part of an answer. Its last part ends a whole answer. */
export interface AnsweredDelta extends Omit<OutputDelta, 'finish'> {
  readonly finish?: Finish & { readonly reason: WholeReason };
}

/**
 * The error of an answer that ended early; undefined if it is whole. The only place that decides what such an answer is: clients know
 * no other sign than an error, and take half a text for a whole one. `signal`: of the caller, whose reason is the error if it aborted.
 */
export function earlyEnd(
  { reason, error }: Pick<Finish, 'error'> & { readonly reason: ChatFinishReason },
  signal: AbortSignal | undefined,
): unknown {
  if (reason === 'error') return error ?? generationFailed();
  if (reason !== 'abort') return undefined;
  return signal?.aborted === true ? signal.reason : engineClosed();
}

/** @throws what `earlyEnd` says */
export function wholeOrError(delta: OutputDelta, signal: AbortSignal | undefined): AnsweredDelta {
  const error = delta.finish === undefined ? undefined : earlyEnd(delta.finish, signal);
  if (error !== undefined) throw error;
  return delta as AnsweredDelta;
}
