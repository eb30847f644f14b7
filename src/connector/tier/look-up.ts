import type { BlockKey } from '../block-key.ts';

/** Parallel to the keys that were asked: whether each block is there. Undefined = not known. */
export type LookupAnswers = readonly (boolean | undefined)[];

export interface LookUpOptions {
  /** Calls under way at once. Default: no limit. */
  readonly limit?: number;
  /** Called for each call that rejects; its key stays unknown. */
  readonly failed?: (key: BlockKey, error: unknown) => void;
}

/**
 * Asks for each key by itself, for tiers whose store is asked one key at a time. A call that fails or hangs leaves its own
 * key unknown and no other. An abort resolves at once with the answers so far; calls under way are not waited for, and
 * no new ones begin.
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
      // A copy: calls that are still under way must not change an answer that was given.
      resolve([...answers]);
    };
    const lane = async (): Promise<void> => {
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
    for (let i = 0; i < Math.min(limit, keys.length); i++) void lane();
  });
}
