import { readFileSync, truncateSync, writeFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { needs } from '../../test/support/needs.ts';
import { sealedFile } from './libc.ts';

describe('a sealed file', needs(process.platform === 'linux', 'no Linux'), () => {
  it('has its bytes, which cannot be changed', () => {
    const bytes = Uint8Array.from({ length: 100_000 }, (_, i) => i);
    const path = sealedFile('kvasir-test', bytes)!;
    expect(path).toMatch(/^\/proc\/self\/fd\/\d+$/);
    bytes[0] = 1;
    for (const change of [
      () => truncateSync(path, 0),
      () => truncateSync(path, 200_000),
      () => writeFileSync(path, 'other bytes', { flag: 'r+' }),
    ]) {
      expect(change).toThrow(/EPERM/);
    }
    bytes[0] = 0;
    expect(readFileSync(path)).toEqual(Buffer.from(bytes));
  });

  it('has its own path, which stays valid', () => {
    const [first, second] = [
      sealedFile('kvasir-test', Buffer.from('1'))!,
      sealedFile('kvasir-test', Buffer.from('2'))!,
    ];
    expect([readFileSync(first, 'utf8'), readFileSync(second, 'utf8')]).toEqual(['1', '2']);
  });
});
