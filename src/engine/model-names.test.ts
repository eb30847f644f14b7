import { describe, expect, it } from 'vitest';
import { modelNames, nameMatch, shownNames } from './model-names.ts';

describe('names of a model', () => {
  const cases: [given: string | string[] | undefined, name: string, aliases: string[] | undefined][] = [
    [undefined, 'm', undefined],
    ['a', 'a', undefined],
    [['a', 'b'], 'a', ['b']],
    [['*'], 'm', ['*']],
    [['claude-*', 'a', 'gpt-*', 'b'], 'a', ['b', 'claude-*', 'gpt-*']],
    [[], 'm', undefined],
  ];
  it.each(cases)('%j: answers have %s', (servedModelName, name, aliases) => {
    const given = servedModelName === undefined ? {} : { servedModelName };
    expect(modelNames({ model: '/models/m.gguf', ...given })).toEqual({ name, ...(aliases && { aliases }) });
  });

  it('are shown without patterns', () => {
    expect(shownNames(['a', 'claude-*', '*', 'b'])).toEqual(['a', 'b']);
  });

  it.each([
    ['a', Infinity],
    ['claude-opus-5', 8],
    ['claude-', 8],
    ['claude', 1],
    ['', 1],
  ])('match %j by %d', (requested, match) => {
    expect(nameMatch(['a', 'claude-*', '*'], requested)).toBe(match);
  });

  it('of other models match nothing', () => {
    expect(nameMatch(['a', 'claude-*'], 'gpt-5')).toBeUndefined();
    expect(nameMatch(['a', 'claude-*'], 'my-claude-*')).toBeUndefined();
  });
});
