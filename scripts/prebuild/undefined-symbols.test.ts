import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { hasCompiler } from '../../test/support/has-compiler.ts';
import { needs } from '../../test/support/needs.ts';
import { undefinedSymbolsOf } from './undefined-symbols.ts';

const folder = mkdtempSync(join(tmpdir(), 'kvasir-symbols-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe(
  'the undefined symbols of a library',
  needs(hasCompiler && process.platform === 'linux', 'no Linux with a C compiler'),
  () => {
    it('are the functions that the process must have', () => {
      const [source, output] = [join(folder, 'x.c'), join(folder, 'x.so')];
      writeFileSync(
        source,
        'float expf(float); int own(void) { return 1; } float f(float x) { return expf(x) + own(); }\n',
      );
      execFileSync('cc', ['-shared', '-fPIC', '-nostdlib', '-fno-builtin', '-o', output, source]);
      expect(undefinedSymbolsOf(readFileSync(output))).toEqual(['expf']);
    });
  },
);
