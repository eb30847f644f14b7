import type { BlockKey } from '../block-key.ts';

/** Parallel to the keys of the look-up: whether each block is stored. Undefined = not known. */
export type LookupAnswers = readonly (boolean | undefined)[];

/** Options of `lookUpEach`. */
export interface LookUpOptions {
  /** How many calls run at once. Default: no limit. */
  readonly limit?: number;
  /** Called for each call that rejects. Its key stays unknown. */
  readonly failed?: (key: BlockKey, error: unknown) => void;
}

/**
 * Calls `ask` for each key, for tiers whose store takes one key per call. A call that fails or hangs leaves only its own
 * key unknown. At an abort, the promise resolves at once with the answers so far, and no new calls begin.
 */
export function lookUpEach(
  keys: readonly BlockKey[],
  signal: AbortSignal,
  ask: (key: BlockKey) => Promise<boolean | undefined>,
  { limit = keys.length, failed }: LookUpOptions = {},
): Promise<LookupAnswers> {
  const answers = new Array<boolean | undefined>(keys.length).fill(undefined);
  if (signal.aborted || keys.length === 0) return Promise.resolve(answers);
  return new Promise((resolve) => {
    let next = 0;
    let open = keys.length;
    const finish = (): void => {
      signal.removeEventListener('abort', finish);
      // A copy, because running calls must not change the answers that were returned.
      resolve([...answers]);
    };
    const askNext = async (): Promise<void> => {
      while (next < keys.length && !signal.aborted) {
        const index = next++;
        const key = keys[index]!;
        try {
          answers[index] = await ask(key);
        } catch (error) {
          if (!signal.aborted) failed?.(key, error);
        }
        if (--open === 0) finish();
      }
    };
    signal.addEventListener('abort', finish, { once: true });
    for (let i = 0; i < Math.min(limit, keys.length); i++) void askNext();
  });
}
