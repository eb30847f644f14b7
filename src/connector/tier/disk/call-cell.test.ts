import { describe, expect, it } from 'vitest';
import { CallCell } from './call-cell.ts';

/** The cell of the caller and the cell of the thread share their memory. */
function newCall(): { readonly caller: CallCell; readonly thread: CallCell } {
  const caller = new CallCell();
  caller.begin();
  return { caller, thread: new CallCell(caller.memory) };
}

describe('a call', () => {
  it('is claimed and released once for each part of its result', () => {
    const { thread } = newCall();
    for (let part = 0; part < 3; part++) {
      expect(thread.claim()).toBe(true);
      expect(thread.release()).toBe(true);
    }
    expect(thread.isAbandoned).toBe(false);
  });

  it('that is abandoned between two parts cannot be claimed again', () => {
    const { caller, thread } = newCall();
    thread.claim();
    thread.release();
    expect(caller.abandon()).toBe(true);
    expect(thread.isAbandoned).toBe(true);
    expect(thread.claim()).toBe(false);
  });

  it('that is abandoned during a part ends with this part', () => {
    const { caller, thread } = newCall();
    thread.claim();
    expect(caller.abandon()).toBe(false);
    expect(thread.isAbandoned).toBe(true);
    expect(thread.release()).toBe(false);
    expect(thread.claim()).toBe(false);
  });

  it('can be claimed after an abandoned call of the same thread', () => {
    const { caller, thread } = newCall();
    caller.abandon();
    caller.begin();
    expect(thread.claim()).toBe(true);
  });

  it('that is abandoned twice, claimed twice, or released without a claim is an assertion failure', () => {
    const { caller, thread } = newCall();
    expect(() => thread.release()).toThrow('a call was released without a claim');
    thread.claim();
    expect(() => thread.claim()).toThrow('a claimed call was claimed again');
    caller.abandon();
    expect(() => caller.abandon()).toThrow('a call was abandoned twice');
  });
});
