import { describe, expect, it } from 'vitest';
import { ManualTime } from '../../test/support/manual-time.ts';
import { MemoryAhead } from './memory-ahead.ts';

/** Pieces of one byte; the value is the number of the piece. Each call of `map` waits until the test answers it. */
function setup(pieceCount: number) {
  const time = new ManualTime();
  const machine = { isBusy: false, looks: 0 };
  const memory = { next: 0, end: pieceCount };
  const begun: number[] = [];
  const answers: ((isMapped: boolean) => void)[] = [];
  const ahead = new MemoryAhead({
    timers: time,
    isBusy: () => {
      machine.looks++;
      return machine.isBusy;
    },
    nextPiece: () => (memory.next < memory.end ? Uint8Array.of(memory.next++) : undefined),
    map: (piece) => {
      begun.push(piece[0]!);
      return new Promise((resolve) => {
        answers.push(resolve);
      });
    },
  });
  const answer = async (isMapped = true): Promise<void> => {
    answers.shift()!(isMapped);
    await Promise.resolve();
    await Promise.resolve();
  };
  return { time, machine, memory, ahead, begun, answer };
}

describe('MemoryAhead', () => {
  it('maps one piece after the other until enough is mapped, and goes on after the next use', async () => {
    const { time, memory, ahead, begun, answer } = setup(2);
    ahead.wake();
    expect(begun).toEqual([]);
    time.advance(100);
    expect(begun).toEqual([0]);
    await answer();
    expect(begun).toEqual([0, 1]);
    await answer();
    expect(time.pending).toBe(0);
    memory.end = 3;
    ahead.wake();
    time.advance(100);
    expect(begun).toEqual([0, 1, 2]);
  });

  it('maps nothing while the machine is busy', async () => {
    const { time, machine, ahead, begun, answer } = setup(3);
    machine.isBusy = true;
    ahead.wake();
    time.advance(1_000);
    expect(begun).toEqual([]);
    machine.isBusy = false;
    time.advance(400);
    machine.isBusy = true;
    await answer();
    time.advance(1_000);
    expect(begun).toEqual([0]);
    machine.isBusy = false;
    time.advance(400);
    expect(begun).toEqual([0, 1]);
  });

  it('looks at a busy machine only every 0.4 s, so that steps lose little time', () => {
    const { time, machine, ahead } = setup(1);
    machine.isBusy = true;
    ahead.wake();
    time.advance(2_100);
    expect(machine.looks).toBe(6);
  });

  it('on a machine that stays busy, no timer remains until memory is used again', () => {
    const { time, machine, ahead, begun } = setup(3);
    machine.isBusy = true;
    ahead.wake();
    time.advance(20_000);
    expect(time.pending).toBe(0);
    machine.isBusy = false;
    time.advance(1_000);
    expect(begun).toEqual([]);
    ahead.wake();
    time.advance(100);
    expect(begun).toEqual([0]);
  });

  it('stops for good if the system cannot map memory', async () => {
    const { time, ahead, begun, answer } = setup(3);
    ahead.wake();
    time.advance(100);
    await answer(false);
    ahead.wake();
    time.advance(1_000);
    expect(begun).toEqual([0]);
  });

  it('is closed when the last piece is mapped, so that its memory may be freed', async () => {
    const { time, ahead, answer } = setup(3);
    ahead.wake();
    time.advance(100);
    let isClosed = false;
    const closed = ahead.close().then(() => {
      isClosed = true;
    });
    await Promise.resolve();
    expect(isClosed).toBe(false);
    await answer();
    await closed;
  });

  it.each(['waits', 'maps a piece'])('closed while it %s, it maps no further piece', async (when) => {
    const { time, ahead, begun, answer } = setup(3);
    ahead.wake();
    if (when === 'maps a piece') time.advance(100);
    const before = begun.length;
    const closed = ahead.close();
    if (when === 'maps a piece') await answer();
    await closed;
    ahead.wake();
    time.advance(1_000);
    expect(begun.length).toBe(before);
    expect(time.pending).toBe(0);
  });
});
