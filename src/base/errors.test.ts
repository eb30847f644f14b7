import { expect, test } from 'vitest';
import { defineError } from './errors.ts';

const stopped = defineError('KVASIR_TEST', 'It stopped: {reason}. Start {what} again.', 503);

test.each([
  ['it failed', 'It stopped: it failed. Start it again.'],
  ['It failed.', 'It stopped: It failed. Start it again.'],
  ['in the folder ..', 'It stopped: in the folder ... Start it again.'],
])('a message has one full stop after the reason "%s"', (reason, message) => {
  expect(stopped({ reason, what: 'it' }).message).toBe(message);
});

test('a value keeps its full stop if the template has none', () => {
  expect(stopped({ reason: 'a', what: 'it.' }).message).toBe('It stopped: a. Start it. again.');
});
