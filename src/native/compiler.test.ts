/**
 * Compilers that are found, missing or failing, kernels that are loaded at the same time, and kernels that are cached.
 */
import { chmodSync, existsSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { hasCompiler } from '../../test/support/has-compiler.ts';
import { needs } from '../../test/support/needs.ts';
import { quickCompiler } from '../../test/support/quick-compiler.ts';
import { loadNative } from '../ggml/ffi.ts';
import { F16 } from '../ggml/types.ts';
import { loadAttentionKernel } from '../runner/attention/attention-kernel.ts';
import { CompileFailure, compileNative, doWithout } from './compiler.ts';

const folder = mkdtempSync(join(tmpdir(), 'kvasir-compiler-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
if (hasCompiler) process.env.CC = quickCompiler(join(folder, 'quick-cc'));
const shape = { headDim: 32, group: 1, blockSize: 16, kvType: F16 };
interface Options {
  readonly compiler?: string;
  readonly cacheFolder?: string;
  readonly event?: (message: string) => void;
}
const load = (options: Options, of = shape) =>
  loadAttentionKernel(loadNative(), of, { cacheFolder: join(folder, 'cache'), ...options });

function script(name: string, lines: string): string {
  const path = join(folder, name);
  writeFileSync(path, `#!/bin/sh\n${lines}\n`);
  chmodSync(path, 0o755);
  return path;
}

describe('the cache of compiled kernels', needs(hasCompiler, 'no C compiler'), () => {
  it('compiles a kernel once for concurrent loads, and a later load finds the kernel', async () => {
    const cacheFolder = join(folder, 'raced');
    const together = await Promise.all([load({ cacheFolder }), load({ cacheFolder }), load({ cacheFolder })]);
    expect(together.every(({ pointer }) => pointer !== 0)).toBe(true);
    const [file, ...others] = readdirSync(cacheFolder);
    expect(others).toEqual([]);
    const before = statSync(join(cacheFolder, file!));
    const again = await load({ cacheFolder });
    expect(again.wasCached).toBe(true);
    expect(statSync(join(cacheFolder, file!)).mtimeMs).toBe(before.mtimeMs);
  });

  it('has one file for each shape and each compiler', async () => {
    const cacheFolder = join(folder, 'many');
    expect((await load({ cacheFolder })).wasCached).toBe(false);
    expect((await load({ cacheFolder }, { ...shape, headDim: 64 })).wasCached).toBe(false);
    expect((await load({ cacheFolder, compiler: script('other-cc', `exec ${process.env.CC} "$@"`) })).wasCached).toBe(
      false,
    );
    expect(readdirSync(cacheFolder)).toHaveLength(3);
  });
});

describe('the source of a kernel', () => {
  it('must list all headers that it includes, because they are part of the digest', async () => {
    const source = { file: 'runner/sampling/logits.c', headers: ['native/vector.h'], definitions: {} };
    await expect(compileNative(source, { compiler: '/nonexistent' })).rejects.toThrow(
      'runner/sampling/logits.c includes tensor.h, which the headers of runner/sampling/logits.c lack',
    );
  });
});

describe('a kernel that cannot be loaded', () => {
  const reasonOf = (options: Options, of = shape) =>
    load(options, of).then(
      () => undefined,
      (error: unknown) => (error instanceof CompileFailure ? error.message : error),
    );

  it('fails with a reason that names the missing compiler', async () => {
    expect(await reasonOf({ compiler: '/nonexistent' })).toBe('there is no C compiler `/nonexistent`');
  });

  it('fails with the error of the compiler, and the cache folder is not created', async () => {
    const cacheFolder = join(folder, 'failing');
    const compiler = script(
      'failing-cc',
      'test "$1" = --version && exit 0; echo "x.c:1: error: no such thing" >&2; exit 1',
    );
    expect(await reasonOf({ compiler, cacheFolder })).toBe('x.c:1: error: no such thing');
    expect(existsSync(cacheFolder)).toBe(false);
  });

  it('fails with the way in which the compiler ended if it has no message', async () => {
    const ends = (name: string, how: string): string => script(name, `test "$1" = --version && exit 0; ${how}`);
    const [killed, silent, useless] = [
      ends('killed-later-cc', 'kill -9 $$'),
      ends('silent-cc', 'exit 3'),
      script('useless-cc', 'exit 3'),
    ];
    const ended = (compiler: string): string => `the C compiler \`${compiler}\` ended without a message, with `;
    expect(await reasonOf({ compiler: killed })).toBe(`${ended(killed)}signal SIGKILL`);
    expect(await reasonOf({ compiler: silent })).toBe(`${ended(silent)}exit code 3`);
    expect(await reasonOf({ compiler: useless })).toBe(`${ended(useless)}exit code 3`);
  });

  it('fails with a reason if the output of the compiler is no library', async () => {
    const compiler = script(
      'garbage-cc',
      'test "$1" = --version && exit 0; while test "$1" != -o; do shift; done; echo nothing > "$2"',
    );
    expect(await reasonOf({ compiler, cacheFolder: join(folder, 'garbage') })).toMatch(/cannot be loaded/);
  });

  it('fails with a reason if the head size is not a multiple of 16', async () => {
    expect(await reasonOf({}, { ...shape, headDim: 72 })).toMatch(/head size 72/);
  });

  it('causes an event only if an operator can change that', async () => {
    const eventsOf = async (options: Options, of = shape): Promise<string[]> => {
      const events: string[] = [];
      const event = (message: string): void => void events.push(message);
      const error: unknown = await load(options, of).catch((reason: unknown) => reason);
      doWithout(error, 'The kernel', 'Something else is used.', { event });
      return events;
    };
    const failing = (name: string, message: string): string =>
      script(name, `test "$1" = --version && exit 0; echo "${message}" >&2; exit 1`);
    expect(await eventsOf({ compiler: '/nonexistent' })).toEqual([
      expect.stringMatching(/^Kernels of Kvasir are missing: .* there is no C compiler `\/nonexistent`/),
    ]);
    expect(await eventsOf({}, { ...shape, headDim: 72 })).toEqual([]);
    expect(await eventsOf({ compiler: failing('old-cpu', 'dot.h:1: error: #error this CPU lacks AVX2') })).toEqual([]);
    expect(await eventsOf({ compiler: failing('error-cc', 'x.c:1: error: no such thing') })).toEqual([
      'The kernel cannot be used: x.c:1: error: no such thing. Something else is used.',
    ]);
    expect(await eventsOf({ compiler: script('killed-cc', 'kill -9 $$') })).toHaveLength(1);
    expect(() => doWithout(new TypeError('a bug'), 'x', 'y', {})).toThrow('a bug');
  });
});
