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
  ])('of %i stages splits %i layers evenly and in order', (stageCount, layers, expected) => {
    const stages = Array.from({ length: stageCount }, (_, rank) => pipelineStage(rank, stageCount, layers));
    expect(stages.map(layersOf)).toEqual(expected);
    expect(stages.map(isFirstStage)).toEqual(stages.map((_, rank) => rank === 0));
    expect(stages.map(isLastStage)).toEqual(stages.map((_, rank) => rank === stageCount - 1));
  });

  it('of one stage has all layers', () => {
    expect(pipelineStage(0, 1, 28)).toEqual(wholeModel(28));
  });

  it('of more stages than layers is refused with the largest possible number', () => {
    expect(() => pipelineStage(0, 6, 5)).toThrow(pipelineTooLong({ stages: 6, layers: 5 }));
    expect(() => pipelineStage(0, 6, 5)).toThrow('--pipeline-parallel-size 5 or less');
  });
});
