import { describe, expect, test } from 'vitest';
import { type Slice, SliceSizes } from './slice-sizes.ts';
import { StepCost } from './step-cost.ts';
import { emptyLoad, PROMPT_SHAPE, promptFeatures, type StepLoad, withPrompt } from './step-load.ts';

const layerCount = 12;
/** A stream that decodes. */
const alone: StepLoad = { ...emptyLoad(), decodes: 1, streams: 1 };
const msOf = ({ promptTokens, layerShare }: StepLoad): number => 20 + promptTokens * layerShare;

/** Every step may have a chunk by layers. */
function open() {
  const sizes = new SliceSizes(0);
  const withPrompts = new StepCost(PROMPT_SHAPE);
  for (const tokens of [8, 12, 16, 24]) {
    const load = withPrompt(alone, 0, tokens);
    withPrompts.observe(promptFeatures(load), msOf(load));
  }
  const choose = (start: number, tokensMax: number, paced = 1): Slice | undefined => {
    const slice = sizes.choose(alone, { start, tokensMax, layerCount, paced }, { limitMs: 65, withPrompts });
    if (slice === undefined) return undefined;
    const load = { ...withPrompt(alone, start, slice.tokens), layerShare: slice.layers / layerCount };
    sizes.hadPrompt(load);
    sizes.observe(load, msOf(load));
    return slice;
  };
  return { choose };
}

describe('a chunk by layers', () => {
  test('has fewer than 32 tokens only if a step with all layers computes less in the same time', () => {
    const { choose } = open();
    expect(choose(1000, 31, 200)).toBeUndefined();
    expect(choose(1000, 32, 200)).toBeDefined();
    expect(choose(1000, 31, 1)).toBeDefined();
  });

  test('leaves no token before the last one of the prompt, or at least 32', () => {
    const { choose } = open();
    for (let tokensMax = 32; tokensMax < 400; tokensMax++) {
      const { tokens } = choose(1000, tokensMax)!;
      if (tokens !== tokensMax) expect(tokensMax - tokens, `of ${tokensMax}`).toBeGreaterThanOrEqual(32);
    }
  });

  test('is not smaller after the end of another prompt', () => {
    const { choose } = open();
    for (let i = 0; i < 8; i++) choose(1000, 512);
    expect(choose(1000, 512)!.tokens).toBeGreaterThan(64);
    expect(choose(1000, 5)!.tokens).toBe(5);
    expect(choose(1000, 512)!.tokens).toBeGreaterThan(64);
  });

  test('may be large if the first one was the end of a prompt', () => {
    const { choose } = open();
    expect(choose(1000, 5)!.tokens).toBe(5);
    expect(choose(1000, 512)!.tokens).toBeGreaterThanOrEqual(32);
  });
});
