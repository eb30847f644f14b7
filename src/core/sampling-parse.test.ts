import { describe, expect, it } from 'vitest';
import { KvasirError } from '../base/errors.ts';
import {
  checkSampling,
  completeSampling,
  parseSamplingParams,
  type SamplingLimits,
  unsetSampling,
  withSeed,
} from './sampling-parse.ts';

const limits: SamplingLimits = { vocabSize: 1000, maxTokensDefault: 77, drawSeed: () => 123n };
const parse = (input: unknown) => parseSamplingParams(input, limits);

function errorOf(input: unknown): KvasirError {
  try {
    parse(input);
  } catch (error) {
    if (error instanceof KvasirError) return error;
    throw error;
  }
  throw new Error('no error was thrown');
}

describe('parseSamplingParams', () => {
  it.each([[undefined], [null], [{}], [{ temperature: undefined, stop: null }]])(
    'fills in defaults for %j',
    (input) => {
      expect(parse(input)).toEqual({
        n: 1,
        temperature: 1,
        topK: 0,
        topP: 1,
        minP: 0,
        repetitionPenalty: 1,
        presencePenalty: 0,
        frequencyPenalty: 0,
        logitBias: new Map(),
        seed: 123n,
        maxTokens: 77,
        minTokens: 0,
        stop: [],
        stopTokenIds: [],
        ignoreEos: false,
        includeStopStrInOutput: false,
        skipSpecialTokens: true,
      });
    },
  );

  it('keeps every value at the limit of its range, and freezes the result', () => {
    const input = {
      n: 128,
      temperature: 0,
      topK: 1,
      topP: 1e-9,
      minP: 1,
      repetitionPenalty: 1e-3,
      presencePenalty: -2,
      frequencyPenalty: 2,
      logitBias: { 0: -100, 999: 100 },
      seed: 2n ** 64n - 1n,
      maxTokens: 5,
      minTokens: 5,
      stop: Array.from({ length: 16 }, (_, index) => `stop ${index}`),
      stopTokenIds: [0, 999, 0],
      ignoreEos: true,
      includeStopStrInOutput: true,
      skipSpecialTokens: false,
      logprobs: 20,
    };
    const params = parse(input);
    expect(params).toEqual({
      ...input,
      logitBias: new Map([
        [0, -100],
        [999, 100],
      ]),
      stopTokenIds: [0, 999],
    });
    expect(Object.isFrozen(params) && Object.isFrozen(params.stop)).toBe(true);
    expect(parse(params)).toEqual(params);
  });

  it('accepts other types that callers use, such as a number as the seed', () => {
    expect(parse({ seed: 7 }).seed).toBe(7n);
    expect(parse({ stop: 'end' }).stop).toEqual(['end']);
    expect(parse({ topK: -1 }).topK).toBe(0);
    expect(parse({ logitBias: new Map([[5, 1.5]]) }).logitBias.get(5 as never)).toBe(1.5);
    expect(parse({ logprobs: 0 }).logprobs).toBe(0);
    expect('logprobs' in parse({ logprobs: null })).toBe(false);
  });

  it('reads parameters once: what was read is not read again, and absent ones stay absent until the prompt is known', () => {
    const read = checkSampling({ topK: -1, stop: 'end', minP: null }, 1000);
    expect(Object.entries(read)).toEqual([
      ['topK', 0],
      ['stop', ['end']],
    ]);
    expect(checkSampling(read, 1000)).toBe(read);
    expect(completeSampling({ ...withSeed(read, limits.drawSeed), n: 3 }, 77)).toEqual({
      ...parse({ topK: 0, stop: 'end' }),
      n: 3,
    });
    // Another program's copy has lost the mark.
    expect(checkSampling(structuredClone(read), 1000)).toEqual(read);
    expect(() => checkSampling({ ...structuredClone(read), minP: 2 }, 1000)).toThrow('`minP` must be');
    expect(Object.getOwnPropertySymbols(parse(read))).toEqual([]);
  });

  it("absent parameters have the values that the model's publisher recommends, if there are any", () => {
    const ofModel = { temperature: 0.6, topK: 20, topP: 0.95 };
    const complete = (input: object) =>
      completeSampling(withSeed(checkSampling(input, 1000), limits.drawSeed), 77, ofModel);
    expect(complete({})).toEqual(parse(ofModel));
    expect(complete({ temperature: 0, topK: -1 })).toEqual(parse({ temperature: 0, topK: 0, topP: 0.95 }));
    expect(unsetSampling(ofModel)).toBe(ofModel);
    expect(unsetSampling({})).toEqual(unsetSampling());
    expect(unsetSampling()).toEqual({ temperature: 0.7, minP: 0.05 });
  });

  it('wraps a drawn seed into 64 bits', () => {
    expect(parseSamplingParams({}, { ...limits, drawSeed: () => 2n ** 64n + 9n }).seed).toBe(9n);
  });

  const bad: readonly (readonly [parameter: string, value: unknown])[] = [
    ...['n', 'temperature', 'topK', 'topP', 'minP', 'repetitionPenalty', 'presencePenalty', 'frequencyPenalty', 'seed']
      .concat(['maxTokens', 'minTokens', 'logprobs', 'promptLogprobs'])
      .flatMap((name) => [NaN, Infinity, -Infinity, '1', true, {}, [], -3].map((value) => [name, value] as const)),
    ...['ignoreEos', 'includeStopStrInOutput', 'skipSpecialTokens'].flatMap((name) =>
      [0, 'true', NaN].map((value) => [name, value] as const),
    ),
    ['n', 0],
    ['n', 129],
    ['n', 1e9],
    ['n', 1.5],
    ['topK', 2.5],
    ['topP', 0],
    ['topP', 1.0001],
    ['minP', 1.1],
    ['repetitionPenalty', 0],
    ['presencePenalty', 2.1],
    ['frequencyPenalty', -2.1],
    ['maxTokens', -1],
    ['logprobs', 21],
    ['promptLogprobs', 21],
    ['seed', 2n ** 64n],
    ['seed', -1n],
    ['seed', 2 ** 53],
    ['stop', 5],
    ['stop', ''],
    ['stop', ['a', '']],
    ['stop', ['a', 1]],
    ['stop', ['\ud83d']],
    ['stop', Array.from({ length: 17 }, () => 'x')],
    ['stopTokenIds', 3],
    ['stopTokenIds', [1000]],
    ['stopTokenIds', [-1]],
    ['stopTokenIds', [1.5]],
    ['stopTokenIds', Array.from({ length: 129 }, (_, index) => index)],
    ['stop', 'x'.repeat(4097)],
    ['logitBias', new Map(Array.from({ length: 1025 }, (_, index) => [`${index}`, 1]))],
    ['logitBias', Object.fromEntries(Array.from({ length: 1025 }, (_, index) => [index, 1]))],
    ['logitBias', [1]],
    ['logitBias', 'x'],
    ['logitBias', { 1000: 1 }],
    ['logitBias', { '-1': 1 }],
    ['logitBias', { '1e1': 1 }],
    ['logitBias', { '': 1 }],
    ['logitBias', { 1: NaN }],
    ['logitBias', { 1: 101 }],
    ['logitBias', { 1: '1' }],
    ['logitBias', new Map([[{}, 1]])],
  ];
  it.each(bad)('refuses %s = %o and names it', (parameter, value) => {
    const error = errorOf({ [parameter]: value });
    expect(error.code).toBe('KVASIR_INVALID_PARAMETER');
    expect(error.httpStatus).toBe(400);
    expect(error.fields.parameter).toBe(parameter);
    expect(error.message).toContain(`\`${parameter}\` must be `);
  });

  it('refuses a logitBias with too many entries before it reads them', () => {
    const wrong = Object.fromEntries(Array.from({ length: 1025 }, (_, index) => [`x${index}`, 'wrong']));
    expect(errorOf({ logitBias: wrong }).message).toBe(
      '`logitBias` must be a map with at most 1024 entries, got 1025 entries.',
    );
  });

  it('refuses minTokens above maxTokens, whether maxTokens is given or the default', () => {
    expect(errorOf({ minTokens: 3, maxTokens: 2 }).message).toBe('`minTokens` must be at most maxTokens (2), got 3.');
    expect(errorOf({ minTokens: 78 }).fields.parameter).toBe('minTokens');
  });

  it('refuses unknown names and values that are not objects', () => {
    expect(errorOf({ temprature: 1 }).fields.parameter).toBe('temprature');
    expect(errorOf('hot').message).toBe('`params` must be an object, got "hot".');
    expect(errorOf([]).fields.parameter).toBe('params');
  });

  it('does not copy a long value into the message', () => {
    expect(errorOf({ temperature: 'x'.repeat(100_000) }).message.length).toBeLessThan(200);
  });
});
