import { expect, it } from 'vitest';
import { openDevice } from './device.ts';

it('refuses more threads than ggml has, which would end the process', () => {
  expect(() => openDevice({ device: 'cpu', threads: 513, exact: false })).toThrow(
    'Cannot compute with 513 threads: 512 is the limit.',
  );
});
