import type { BlockKey } from '../../block-key.ts';
import type { LookupAnswers } from '../look-up.ts';

export interface CountLookUpOptions {
  /** How many of these keys are stored. A key that occurs twice counts twice. */
  readonly countStored: (keys: readonly BlockKey[]) => Promise<number>;
  /** The largest number of keys in a call. */
  readonly keysMax: number;
  /** Called for each call that rejects. Its keys stay unknown. */
  readonly failed: (error: unknown, keyCount: number) => void;
}

/** A part of keys of which some are stored is asked again in this many parts. */
const partsOfMixed = 8;

/**
 * Looks up keys in a store that counts. All or none of a group of keys are usually stored, so one call answers for the
 * whole group. Other groups are split. At an abort, the promise resolves at once with the answers so far.
 *
 * Costs for n keys in groups of 64: n / 64 calls, and 16 more where stored keys end. If stored keys alternate with
 * missing ones: at most 1.14 n calls.
 */
export function lookUpByCount(
  keys: readonly BlockKey[],
  signal: AbortSignal,
  { countStored, keysMax, failed }: CountLookUpOptions,
): Promise<LookupAnswers> {
  const answers = new Array<boolean | undefined>(keys.length).fill(undefined);
  const ask = async (start: number, end: number): Promise<void> => {
    if (signal.aborted) return;
    let count: number;
    try {
      count = await countStored(keys.slice(start, end));
    } catch (error) {
      if (!signal.aborted) failed(error, end - start);
      return;
    }
    if (count === 0 || count === end - start) answers.fill(count > 0, start, end);
    else await askParts(start, end, Math.ceil((end - start) / partsOfMixed));
  };
  const askParts = async (start: number, end: number, step: number): Promise<void> => {
    const parts: Promise<void>[] = [];
    for (let at = start; at < end; at += step) parts.push(ask(at, Math.min(at + step, end)));
    await Promise.all(parts);
  };
  return new Promise((resolve) => {
    const finish = (): void => {
      signal.removeEventListener('abort', finish);
      // A copy, because running calls must not change the answers that were returned.
      resolve([...answers]);
    };
    signal.addEventListener('abort', finish, { once: true });
    if (signal.aborted) finish();
    else void askParts(0, keys.length, keysMax).then(finish);
  });
}
