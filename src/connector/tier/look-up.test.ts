import { describe, expect, it } from 'vitest';
import { lookUpEach } from './look-up.ts';
import { suiteKey } from './tier.suite.ts';

const keys = [0, 1, 2, 3].map((name) => suiteKey(name));
const open = new AbortController().signal;

describe('a look-up of many keys', () => {
  it('leaves only the key whose call fails unknown', async () => {
    const failed: string[] = [];
    const answers = await lookUpEach(
      keys,
      open,
      async (key) => {
        if (key === keys[1]) throw new Error('unreadable');
        return key !== keys[3];
      },
      { failed: (key, error) => void failed.push(`${keys.indexOf(key)} ${(error as Error).message}`) },
    );
    expect(answers).toEqual([true, undefined, true, false]);
    expect(failed).toEqual(['1 unreadable']);
  });

  it('ends with the known answers at an abort, while calls hang', async () => {
    const controller = new AbortController();
    const never = new Promise<boolean>(() => {});
    let begun = 0;
    const asked = lookUpEach(
      keys,
      controller.signal,
      (key) => {
        begun++;
        return key === keys[0] ? Promise.resolve(true) : never;
      },
      { limit: 2 },
    );
    await new Promise((resolve) => setImmediate(resolve));
    controller.abort();
    expect(await asked).toEqual([true, undefined, undefined, undefined]);
    expect(begun).toBe(3);
  });

  it('does not change the returned answers when a call ends late', async () => {
    const controller = new AbortController();
    let end: (found: boolean) => void = () => {};
    const asked = lookUpEach([keys[0]!], controller.signal, () => new Promise((resolve) => (end = resolve)));
    controller.abort();
    const answers = await asked;
    end(true);
    await new Promise((resolve) => setImmediate(resolve));
    expect(answers).toEqual([undefined]);
  });

  it('makes no call when it is aborted before it begins', async () => {
    const answers = await lookUpEach(keys, AbortSignal.abort(), () => Promise.reject(new Error('asked')));
    expect(answers).toEqual([undefined, undefined, undefined, undefined]);
  });
});
