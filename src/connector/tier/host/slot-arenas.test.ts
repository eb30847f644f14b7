import { describe, expect, it } from 'vitest';
import { SlotArenas } from './slot-arenas.ts';

function arenas(slotCountMax: number, arenaBytes = 30, ahead: { aheadBytes?: number; pieceBytes?: number } = {}) {
  const sizes: number[] = [];
  const allocate = (bytes: number): Uint8Array => {
    sizes.push(bytes);
    return new Uint8Array(bytes);
  };
  return { sizes, slots: new SlotArenas({ slotBytes: 10, slotCountMax, arenaBytes, allocate, ...ahead }) };
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

  describe('that were never used', () => {
    /** The pieces as `arena:start-end`. */
    function pieces(slots: SlotArenas): string[] {
      const found: string[] = [];
      const buffers: ArrayBufferLike[] = [];
      for (let piece = slots.nextUnmapped(); piece !== undefined; piece = slots.nextUnmapped()) {
        if (!buffers.includes(piece.buffer)) buffers.push(piece.buffer);
        found.push(`${buffers.indexOf(piece.buffer)}:${piece.byteOffset}-${piece.byteOffset + piece.length}`);
      }
      return found;
    }

    it('are mapped up to a bound ahead of the used ones, and each piece once', () => {
      const { sizes, slots } = arenas(100, 30, { aheadBytes: 50, pieceBytes: 20 });
      expect(pieces(slots)).toEqual(['0:0-20', '0:20-30', '1:0-20']);
      expect(sizes).toEqual([30, 30]);
      slots.take();
      slots.take();
      expect(pieces(slots)).toEqual(['0:20-30', '1:0-10']);
      expect(sizes).toEqual([30, 30, 30]);
      for (const _ of [1, 2, 3]) slots.take();
      slots.giveBack(1);
      slots.take();
      expect(pieces(slots)).toEqual(['0:10-30', '1:0-10']);
    });

    it('are mapped from the first unused one on, if use is faster', () => {
      const { slots } = arenas(100, 30, { aheadBytes: 10, pieceBytes: 10 });
      expect(pieces(slots)).toEqual(['0:0-10']);
      for (let i = 0; i < 8; i++) slots.take();
      slots.bytesOf(7).fill(7);
      expect(slots.nextUnmapped()).toEqual(new Uint8Array(10));
      expect(slots.nextUnmapped()).toBeUndefined();
    });

    it('are not mapped beyond the last slot', () => {
      const { sizes, slots } = arenas(4, 30, { aheadBytes: 1_000, pieceBytes: 1_000 });
      expect(pieces(slots)).toEqual(['0:0-30', '1:0-10']);
      expect(sizes).toEqual([30, 10]);
      expect(Array.from({ length: 5 }, () => slots.take())).toEqual([0, 1, 2, 3, undefined]);
    });

    it('without memory for the next arena, the slots with memory remain', () => {
      let arenasLeft = 1;
      const allocate = (bytes: number): Uint8Array => {
        if (arenasLeft-- === 0) throw new RangeError('no memory');
        return new Uint8Array(bytes);
      };
      const slots = new SlotArenas({ slotBytes: 10, slotCountMax: 9, arenaBytes: 30, aheadBytes: 1_000, allocate });
      expect(pieces(slots)).toEqual(['0:0-30']);
      expect(slots.slotCountMax).toBe(9);
      arenasLeft = 0;
      expect(Array.from({ length: 4 }, () => slots.take())).toEqual([0, 1, 2, undefined]);
      expect(slots.slotCountMax).toBe(3);
      expect(slots.nextUnmapped()).toBeUndefined();
    });
  });
});
