import { InvalidArgumentError } from 'commander';
import { describe, expect, it } from 'vitest';
import {
  bytesFlag,
  cpusFlag,
  gibibytesFlag,
  integerFrom,
  latencyFlag,
  listFlag,
  modelLenFlag,
  numberFlag,
  tokensFlag,
} from './args.ts';

describe('values of flags', () => {
  it.each([
    ['1000000', 1e6],
    ['2GiB', 2 * 1024 ** 3],
    ['512 MiB', 512 * 1024 ** 2],
    ['1.5g', 1.5e9],
    ['64kb', 64_000],
    ['10B', 10],
  ])('%s are %i bytes', (text, bytes) => {
    expect(bytesFlag(text)).toBe(bytes);
  });

  it.each(['', 'GiB', '2 giraffes', '-1', '0', '1e9', '1.2.3', '99999999tib', 'NaN'])(
    '%j is not a number of bytes',
    (text) => {
      expect(() => bytesFlag(text)).toThrow(InvalidArgumentError);
    },
  );

  it('are lists of cores', () => {
    expect(cpusFlag('0-3,8')).toEqual([0, 1, 2, 3, 8]);
    expect(cpusFlag('5')).toEqual([5]);
    expect(cpusFlag('7, 1-2,2')).toEqual([7, 1, 2]);
    for (const text of ['', ',', '1,', '3-1', '-1', '1-', '0x3', '1.5', '0-99999', 'all']) {
      expect(() => cpusFlag(text), text).toThrow(InvalidArgumentError);
    }
  });

  it('are lengths of requests of at least two tokens', () => {
    expect([modelLenFlag('2'), modelLenFlag('4K')]).toEqual([2, 4096]);
    expect(() => modelLenFlag('1')).toThrow('at least 2: one token of the prompt and one of the output');
  });

  it('are sizes of host memory that the machine has', () => {
    expect(gibibytesFlag('0.5')).toBe(0.5);
    for (const text of ['1e9', '1e300', '99999'])
      expect(() => gibibytesFlag(text), text).toThrow(
        /It is a number of GiB, but this (machine has|container may use) .* of memory/,
      );
    for (const text of ['0', '-1', '1e-12']) expect(() => gibibytesFlag(text), text).toThrow(/GiB above 0/);
  });

  it('are whole numbers in their range', () => {
    const port = integerFrom(0, 65_535);
    expect([port('0'), port('8000'), port('65535')]).toEqual([0, 8000, 65_535]);
    for (const text of ['', '-1', '65536', '1.5', '1e3', '0x10', 'many']) {
      expect(() => port(text), text).toThrow(InvalidArgumentError);
    }
    expect(integerFrom(-1)('-1')).toBe(-1);
  });

  it('are tokens, with the units of vLLM', () => {
    const lengths = ['4096', '4k', '4K', '1.5m', '1M', '25.6k'].map(tokensFlag);
    expect(lengths).toEqual([4096, 4000, 4096, 1_500_000, 2 ** 20, 25_600]);
    for (const text of ['', '0', '-1', '1.5', '1.5K', '4kk', 'k', '4 k', '1e3', '1.2.3k'])
      expect(() => tokensFlag(text), text).toThrow(InvalidArgumentError);
  });

  it('are lists: values between commas, or JSON', () => {
    expect(listFlag('a, b')).toEqual(['a', 'b']);
    expect(listFlag('["a", "b,c"]')).toEqual(['a', 'b,c']);
    for (const text of ['', 'a,,b', '[]', '[1]', '["a"', '[""]'])
      expect(() => listFlag(text), text).toThrow(InvalidArgumentError);
  });

  it('are a latency: milliseconds, 0 for no limit, or "auto"', () => {
    expect(['auto', '0', '12.5'].map(latencyFlag)).toEqual(['auto', 0, 12.5]);
    for (const text of ['', '-1', 'Infinity', 'fast', '10ms'])
      expect(() => latencyFlag(text), text).toThrow(InvalidArgumentError);
  });

  it('are finite numbers', () => {
    expect([numberFlag('0'), numberFlag('-0.5'), numberFlag('1e-3')]).toEqual([0, -0.5, 0.001]);
    for (const text of ['', ' ', 'NaN', 'Infinity', 'hot'])
      expect(() => numberFlag(text), text).toThrow(InvalidArgumentError);
  });
});
