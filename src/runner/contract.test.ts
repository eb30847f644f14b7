import { describe, expect, it } from 'vitest';
import { isFirstStage, isLastStage, layersOf, pipelineStage, pipelineTooLong, wholeModel } from './contract.ts';

describe('a pipeline', () => {
  it.each([
    [1, 5, [[0, 1, 2, 3, 4]]],
    [
      2,
      5,
      [
        [0, 1, 2],
        [3, 4],
      ],
    ],
    [3, 5, [[0, 1], [2, 3], [4]]],
    [3, 3, [[0], [1], [2]]],
  ])('of %i stages deals out %i layers evenly and in order', (stages, layers, expected) => {
    const dealt = Array.from({ length: stages }, (_, rank) => pipelineStage(rank, stages, layers));
    expect(dealt.map(layersOf)).toEqual(expected);
    expect(dealt.map(isFirstStage)).toEqual(dealt.map((_, rank) => rank === 0));
    expect(dealt.map(isLastStage)).toEqual(dealt.map((_, rank) => rank === stages - 1));
  });

  it('of one stage is the whole model', () => {
    expect(pipelineStage(0, 1, 28)).toEqual(wholeModel(28));
  });

  it('of more stages than layers is refused, with the largest that there can be', () => {
    expect(() => pipelineStage(0, 6, 5)).toThrow(pipelineTooLong({ stages: 6, layers: 5 }));
    expect(() => pipelineStage(0, 6, 5)).toThrow('--pipeline-parallel-size 5 or less');
  });
});
