import { describe, expect, it } from 'vitest';
import { SlotArenas } from './slot-arenas.ts';

function arenas(slotCountMax: number, arenaBytes = 30) {
  const sizes: number[] = [];
  const allocate = (bytes: number): Uint8Array => {
    sizes.push(bytes);
    return new Uint8Array(bytes);
  };
  return { sizes, slots: new SlotArenas({ slotBytes: 10, slotCountMax, arenaBytes, allocate }) };
}

describe('slots', () => {
  it('come from arenas that are allocated when the slots before are in use', () => {
    const { sizes, slots } = arenas(7);
    expect(sizes).toEqual([]);
    const taken = Array.from({ length: 7 }, () => slots.take()!);
    expect(taken).toEqual([0, 1, 2, 3, 4, 5, 6]);
    expect(sizes).toEqual([30, 30, 10]);
    expect(slots.take()).toBeUndefined();
    expect([slots.usedCount, slots.freeCount]).toEqual([7, 0]);
    slots.checkInvariants(new Set(taken));
  });

  it('have memory of their own', () => {
    const { slots } = arenas(7);
    const taken = Array.from({ length: 7 }, () => slots.take()!);
    for (const slot of taken) slots.bytesOf(slot).fill(slot + 1);
    for (const slot of taken) expect(slots.bytesOf(slot)).toEqual(new Uint8Array(10).fill(slot + 1));
  });

  it('are used again before fresh ones, the last freed first', () => {
    const { sizes, slots } = arenas(7);
    for (let i = 0; i < 3; i++) slots.take();
    slots.giveBack(0);
    slots.giveBack(2);
    expect([slots.take(), slots.take(), slots.take()]).toEqual([2, 0, 3]);
    expect(sizes).toEqual([30, 30]);
  });

  it('that are larger than an arena have an arena each', () => {
    const { sizes, slots } = arenas(2, 4);
    slots.take();
    slots.take();
    expect(sizes).toEqual([10, 10]);
  });

  it('the invariants name a slot that is free twice, and slots that are not known to be used', () => {
    const { slots } = arenas(3);
    slots.take();
    expect(() => slots.checkInvariants(new Set())).toThrow('0 slots are used, 1 were taken');
    expect(() => slots.giveBack(1)).toThrow('slot 1 was never taken');
    slots.giveBack(0);
    slots.giveBack(0);
    expect(() => slots.checkInvariants(new Set())).toThrow('free twice');
  });
});
