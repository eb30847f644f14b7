import { describe, expect, it } from 'vitest';
import { formatBytes, parseBytes } from './bytes.ts';

describe('numbers of bytes', () => {
  it.each([
    ['1000000', 1_000_000],
    ['2GiB', 2 * 1024 ** 3],
    ['512 MiB', 512 * 1024 ** 2],
    ['1.5g', 1.5e9],
    ['0', undefined],
    ['-1', undefined],
    ['8 GiBs', undefined],
    ['', undefined],
  ])('reads %j as %s', (text, bytes) => {
    expect(parseBytes(text)).toBe(bytes);
  });

  it.each([
    [160, '160 B'],
    [1536, '1.5 KiB'],
    [64 * 1024 ** 2, '64 MiB'],
    [8.25 * 1024 ** 3, '8.3 GiB'],
    [3000 * 1024 ** 4, '3000 TiB'],
  ])('writes %d as %j', (bytes, text) => {
    expect(formatBytes(bytes)).toBe(text);
  });
});
