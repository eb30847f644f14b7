import { expect, it } from 'vitest';
import { memoryLimit } from './memory-limit.ts';

const GIB = 1024 ** 3;

it('the limit of the memory is that of the container, if it is smaller than the machine', () => {
  expect(memoryLimit(16 * GIB, 2 * GIB)).toEqual({ bytes: 2 * GIB, text: 'this container may use 2 GiB of memory' });
});

it.each([0, 16 * GIB, 2 ** 64])(
  'a container whose limit is %s bytes has the memory of the machine',
  (containerBytes) => {
    expect(memoryLimit(16 * GIB, containerBytes)).toEqual({
      bytes: 16 * GIB,
      text: 'this machine has 16 GiB of memory',
    });
  },
);
