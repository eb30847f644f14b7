import { expect, onTestFinished, test } from 'vitest';
import { costLeft, ShortFirst } from '../src/scheduler/short-first.ts';
import { inLongForm } from '../test/support/long-form.ts';
import { runCrowd } from './starvation.ts';

const seeds = Array.from({ length: inLongForm(30, 5) }, (_, i) => i + 1);

test('a crowd of short prompts starves no prompt', () => {
  for (const seed of seeds) runCrowd(seed);
});

test('a planted bug is found: the short prompts that went ahead are not counted', () => {
  const { costMax } = ShortFirst.prototype;
  onTestFinished(() => {
    ShortFirst.prototype.costMax = costMax;
  });
  ShortFirst.prototype.costMax = (long) => costLeft(long) / 4;
  expect(() => {
    for (const seed of seeds) runCrowd(seed);
  }).toThrow(/^I8: seed \d+: prompts that came after r\d+ cost/);
});
