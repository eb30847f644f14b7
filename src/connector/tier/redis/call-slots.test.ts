import { expect, it } from 'vitest';
import { CallSlots } from './call-slots.ts';

const open = new AbortController().signal;

function gate(): { readonly opened: Promise<void>; open(): void } {
  let resolve = (): void => undefined;
  const opened = new Promise<void>((done) => {
    resolve = done;
  });
  return { opened, open: () => resolve() };
}

it('at most `count` calls run at once, in the order of the calls', async () => {
  const slots = new CallSlots(2);
  const gates = Array.from({ length: 5 }, gate);
  const begun: number[] = [];
  const calls = gates.map(({ opened }, i) =>
    slots.run(open, async () => {
      begun.push(i);
      await opened;
      return i;
    }),
  );
  expect(begun).toEqual([0, 1]);
  gates[1]!.open();
  await calls[1];
  await Promise.resolve();
  expect(begun).toEqual([0, 1, 2]);
  for (const { open } of gates) open();
  expect(await Promise.all(calls)).toEqual([0, 1, 2, 3, 4]);
  expect(begun).toEqual([0, 1, 2, 3, 4]);
});

it('a call that is aborted while it waits never begins, and takes no slot', async () => {
  const slots = new CallSlots(1);
  const { opened, open: openGate } = gate();
  const first = slots.run(open, () => opened);
  const controller = new AbortController();
  let begun = false;
  const second = slots.run(controller.signal, async () => {
    begun = true;
  });
  const third = slots.run(open, async () => 'third');
  controller.abort(new Error('not wanted any more'));
  await expect(second).rejects.toThrow('not wanted any more');
  openGate();
  await first;
  expect(await third).toBe('third');
  expect(begun).toBe(false);
  expect(await slots.run(open, async () => 'later')).toBe('later');
});

it('a call that fails frees its slot', async () => {
  const slots = new CallSlots(1);
  const failing = slots.run(open, () => Promise.reject(new Error('failed')));
  const next = slots.run(open, async () => 'next');
  await expect(failing).rejects.toThrow('failed');
  expect(await next).toBe('next');
});
