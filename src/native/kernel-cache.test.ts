/** A corrupt library is never loaded, and a cache folder that cannot be used costs only time. */
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { hasCompiler } from '../../test/support/has-compiler.ts';
import { needs } from '../../test/support/needs.ts';
import { quickCompiler } from '../../test/support/quick-compiler.ts';
import { loadNative } from '../ggml/ffi.ts';
import { logitsSource } from '../runner/sampling/logits-passes.ts';
import { type CompileOptions, compileNative, openNative } from './compiler.ts';

const folder = mkdtempSync(join(tmpdir(), 'kvasir-kernels-'));
// Libraries that no cache can store are removed when the process exits, but a test runner may kill its processes.
process.env.TMPDIR = folder;
if (hasCompiler) process.env.CC = quickCompiler(join(folder, 'quick-cc'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Loads the smallest kernel. */
const load = (options: CompileOptions) =>
  openNative(logitsSource, options, ({ path, wasCached }) => {
    const best = loadNative().functionIn(path, 'kvasir_best', 'i64', 'data', 'i64');
    return { wasCached, best: best(Float32Array.of(1, 3, 2), 3) };
  });

/** A cache folder with a library that this process has not loaded: except on Linux, a loaded file must not change. */
async function filled(name: string): Promise<{ readonly cacheFolder: string; readonly path: string }> {
  const cacheFolder = join(folder, name);
  const { path } = await compileNative(logitsSource, { cacheFolder });
  return { cacheFolder, path };
}

function file(name: string, content = ''): string {
  const path = join(folder, name);
  writeFileSync(path, content, { mode: 0o755 });
  return path;
}

describe('a library in the cache', needs(hasCompiler, 'no C compiler'), () => {
  const damages: readonly (readonly [string, (path: string) => void])[] = [
    ['that is empty', (path) => truncateSync(path, 0)],
    // Loading it would end the process with SIGBUS.
    ['that is truncated to half', (path) => truncateSync(path, statSync(path).size >> 1)],
    [
      'with a flipped bit',
      (path) => {
        const bytes = readFileSync(path);
        bytes[bytes.length >> 1]! ^= 1;
        writeFileSync(path, bytes);
      },
    ],
    ['with one byte too many', (path) => writeFileSync(path, Buffer.concat([readFileSync(path), Buffer.of(0)]))],
    [
      'that is a folder',
      (path) => {
        rmSync(path);
        mkdirSync(path);
      },
    ],
    [
      'that is a dangling link',
      (path) => {
        rmSync(path);
        symlinkSync('/nonexistent', path);
      },
    ],
  ];

  it.each(damages)('%s is compiled again', async (name, damage) => {
    const { cacheFolder, path } = await filled(name);
    damage(path);
    const kernel = await load({ cacheFolder });
    expect(kernel).toEqual({ wasCached: false, best: 1 });
  });

  it('that is corrupt causes one event and is replaced', async () => {
    const { cacheFolder, path } = await filled('reported');
    const whole = readFileSync(path);
    truncateSync(path, whole.length >> 1);
    const events: string[] = [];
    const event = (message: string): void => void events.push(message);
    expect((await load({ cacheFolder, event })).wasCached).toBe(false);
    expect(events).toEqual([`A compiled kernel in ${cacheFolder} was corrupt. It is compiled again.`]);
    expect(readFileSync(path)).toEqual(whole);
    expect((await load({ cacheFolder, event })).wasCached).toBe(true);
    expect(events).toHaveLength(1);
  });

  it('that is intact but no library is compiled again', async () => {
    const cacheFolder = join(folder, 'never-linked');
    const unreadable = join(folder, 'is-failing');
    writeFileSync(unreadable, '');
    const lines = `test "$1" = --version && exit 0; test -e ${unreadable} || exec ${process.env.CC} "$@"; while test "$1" != -o; do shift; done; echo nothing > "$2"`;
    const compiler = file('sometimes-failing-cc', `#!/bin/sh\n${lines}\n`);
    await expect(load({ cacheFolder, compiler })).rejects.toThrow(/cannot be loaded/);
    rmSync(unreadable);
    expect((await load({ cacheFolder, compiler })).wasCached).toBe(false);
    expect(readdirSync(cacheFolder)).toHaveLength(1);
  });

  it('is written to a temporary file, which is removed if it is older than a day', async () => {
    const cacheFolder = join(folder, 'temporaries');
    mkdirSync(cacheFolder);
    for (const [name, hours] of [
      ['.young.tmp', 23],
      ['.old.tmp', 25],
    ] as const) {
      writeFileSync(join(cacheFolder, name), '');
      const seconds = Date.now() / 1000 - hours * 3600;
      utimesSync(join(cacheFolder, name), seconds, seconds);
    }
    await load({ cacheFolder });
    expect(readdirSync(cacheFolder).filter((name) => name.endsWith('.tmp'))).toEqual(['.young.tmp']);
  });
});

describe('the copy in memory of a library', {
  ...needs(hasCompiler, 'no C compiler'),
  ...needs(process.platform === 'linux', 'no Linux'),
}, () => {
  it('is loaded instead of the file, because the file may change after the check', async () => {
    const { cacheFolder } = await filled('copied');
    const taken: string[] = [];
    const take = ({ path }: { readonly path: string }): void => void taken.push(path);
    await openNative(logitsSource, { cacheFolder }, take);
    await openNative(logitsSource, { cacheFolder }, take);
    expect(taken[0]).toMatch(/^\/proc\/self\/fd\//);
    expect(taken).toEqual([taken[0], taken[0]]);
  });

  it('is not used if it cannot be loaded: the file is loaded', async () => {
    const { cacheFolder, path } = await filled('refused');
    const taken = await openNative(logitsSource, { cacheFolder }, (compiled) => {
      if (compiled.path.startsWith('/proc/')) throw new Error('operation not permitted');
      return compiled;
    });
    expect(taken).toMatchObject({ path, wasCached: true });
  });
});

describe('a cache folder that cannot be used', needs(hasCompiler, 'no C compiler'), () => {
  const isRoot = process.getuid?.() === 0;
  const folders: readonly (readonly [string, () => string, boolean])[] = [
    ['below /proc', () => '/proc/nothing/kvasir', existsSync('/proc/self')],
    ['that is a file', () => file('a-file'), true],
    ['below a file', () => join(file('another-file'), 'below'), true],
    ['on a full device', () => '/dev/full/kvasir', existsSync('/dev/full')],
    ['that is read-only', () => '/sys/kvasir', existsSync('/sys/kernel') && isRoot],
  ];

  for (const [name, at, exists] of folders) {
    it(
      `${name} costs each process one compilation and one event`,
      needs(exists, 'no such folder on this machine'),
      async () => {
        const cacheFolder = at();
        const events: string[] = [];
        const event = (message: string): void => void events.push(message);
        expect((await load({ cacheFolder, event })).best).toBe(1);
        expect((await load({ cacheFolder, event })).best).toBe(1);
        expect(events).toHaveLength(1);
        expect(events[0]).toMatch(/^The cache folder .* cannot be used: .*Kernels are compiled again at each start\./);
      },
    );
  }
});
