/** Libraries of the package are found by their source and by the CPU's level, and are used only if they are intact. */
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeEach, describe, expect, it } from 'vitest';
import { hasCompiler } from '../../test/support/has-compiler.ts';
import { needs } from '../../test/support/needs.ts';
import { quickCompiler } from '../../test/support/quick-compiler.ts';
import { loadNative } from '../ggml/ffi.ts';
import { logitsSource } from '../runner/sampling/logits-passes.ts';
import { type Compiled, type CompileOptions, compileNative, openNative } from './compiler.ts';
import { listedFeatures } from './cpu-features.ts';
import { type CpuLevelName, cpuLevelOf, cpuLevels } from './cpu-level.ts';
import { cpuIdSource, findPrebuilt, type PrebuiltManifest, platformName } from './prebuilt.ts';

const folder = mkdtempSync(join(tmpdir(), 'kvasir-prebuilt-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const compiler = hasCompiler ? quickCompiler(join(folder, 'quick-cc')) : '';
const before = { ...process.env };
beforeEach(() => {
  process.env = { ...before, PATH: folder, XDG_CACHE_HOME: join(folder, 'cache') };
  delete process.env.CC;
});
afterEach(() => {
  process.env = before;
});

const level = async (): Promise<CpuLevelName | undefined> =>
  cpuLevelOf(process.arch, (await listedFeatures()) ?? new Set());
const ownLevel = await level();

/** A folder of libraries with one kernel, which the compiler of this machine has built. */
async function shipped(name: string, at: CpuLevelName = ownLevel ?? 'avx2') {
  process.env = { ...before };
  const { library, sourceDigest } = await compileNative(logitsSource, { compiler, cacheFolder: join(folder, 'made') });
  process.env = { ...before, PATH: folder, XDG_CACHE_HOME: join(folder, 'cache'), KVASIR_PREBUILT: join(folder, name) };
  delete process.env.CC;
  const own = join(folder, name, platformName());
  mkdirSync(own, { recursive: true });
  const file = { file: 'logits.so', sha256: createHash('sha256').update(library).digest('hex') };
  const manifest: PrebuiltManifest = { compiler: 'zig', libraries: { [sourceDigest]: { [at]: file } } };
  writeFileSync(join(own, file.file), library);
  writeFileSync(join(own, 'manifest.json'), JSON.stringify(manifest));
  return { path: join(own, file.file), sourceDigest };
}

/** Loads the kernel, and says where it came from. */
const load = (options: CompileOptions = {}) =>
  openNative(logitsSource, options, ({ path, level: of }: Compiled) => {
    const best = loadNative().functionIn(path, 'kvasir_best', 'i64', 'data', 'i64');
    return { level: of, best: best(Float32Array.of(1, 3, 2), 3) };
  });

describe('a prebuilt kernel', {
  ...needs(hasCompiler, 'no C compiler'),
  ...needs(ownLevel !== undefined && ownLevel !== 'x86-64', 'this CPU has no prebuilt kernels'),
}, () => {
  it('is loaded without a compiler and without a cache folder', async () => {
    await shipped('loaded');
    const events: string[] = [];
    process.env.XDG_CACHE_HOME = join(folder, 'quick-cc', 'below-a-file');
    expect(await load({ event: (message) => events.push(message) })).toEqual({ level: ownLevel, best: 1 });
    expect(events).toEqual([]);
  });

  it('has the digest of a source that is compiled on the machine', async () => {
    const { sourceDigest } = await shipped('same-digest');
    expect((await findPrebuilt(logitsSource)).found?.sourceDigest).toBe(sourceDigest);
  });

  it('of a lower level is loaded if the package has none of the level of the CPU', async () => {
    const [lower] = cpuLevels[ownLevel!].below;
    if (lower === undefined) return;
    await shipped('lower', lower);
    expect((await load()).level).toBe(lower);
  });

  it('for another CPU, of another source or on another platform is not used', async () => {
    await shipped('other-cpu', process.arch === 'arm64' ? 'avx2' : 'neon');
    expect(await findPrebuilt(logitsSource)).toEqual({ reason: `no prebuilt kernel is for the CPU level ${ownLevel}` });
    await shipped('other-source');
    expect(await findPrebuilt(cpuIdSource)).toEqual({ reason: 'the package has no prebuilt kernel for this shape' });
    process.env.KVASIR_PREBUILT = join(folder, 'nothing');
    expect(await findPrebuilt(logitsSource)).toEqual({
      reason: `the package has no prebuilt kernels for ${platformName()}`,
    });
    process.env.KVASIR_PREBUILT = 'off';
    expect(await findPrebuilt(logitsSource)).toEqual({ reason: 'KVASIR_PREBUILT is off' });
    await expect(load()).rejects.toThrow('there is no C compiler `cc`');
  });

  it('that is corrupt is not loaded: an event names the file, and the kernel is compiled', async () => {
    const { path } = await shipped('corrupt');
    truncateSync(path, readFileSync(path).length >> 1);
    const events: string[] = [];
    const event = (message: string): void => void events.push(message);
    await expect(load({ event })).rejects.toThrow('there is no C compiler `cc`');
    expect(events).toEqual([`${path} is missing or corrupt. The kernel is compiled on this machine instead.`]);
  });

  it('that is intact but cannot be loaded is compiled, and an event has the reason', async () => {
    const { path, sourceDigest } = await shipped('no-library');
    writeFileSync(path, 'nothing');
    const file = { file: 'logits.so', sha256: createHash('sha256').update('nothing').digest('hex') };
    const manifest: PrebuiltManifest = { compiler: 'zig', libraries: { [sourceDigest]: { [ownLevel!]: file } } };
    writeFileSync(join(path, '..', 'manifest.json'), JSON.stringify(manifest));
    const events: string[] = [];
    const event = (message: string): void => void events.push(message);
    await expect(load({ event })).rejects.toThrow('there is no C compiler `cc`');
    expect(events).toHaveLength(1);
    expect(events[0]).toMatch(/logits\.so cannot be loaded: .*It is compiled on this machine instead\.$/);
  });

  it('is not used if the user names a compiler or its flags for the CPU', async () => {
    await shipped('own-choice');
    process.env = { ...process.env, PATH: before.PATH, CC: compiler };
    const cacheFolder = join(folder, 'own');
    expect(await load({ cacheFolder })).toEqual({ best: 1 });
    delete process.env.CC;
    expect(await load({ cacheFolder, compiler })).toEqual({ best: 1 });
    process.env.KVASIR_CPU_FLAGS = process.arch === 'x64' ? '-march=x86-64' : '-mcpu=native';
    expect(await load({ cacheFolder })).toEqual({ best: 1 });
  });
});

it('a CPU has the level of the form that a compiler on the machine would choose', () => {
  const avx2 = ['avx2', 'fma', 'f16c', 'abm', 'bmi1', 'bmi2', 'movbe', 'pclmulqdq'];
  const avx512 = [...avx2, 'avx512f', 'avx512bw', 'avx512cd', 'avx512dq', 'avx512vl'];
  const levelOf = (...features: string[]) => cpuLevelOf('x64', new Set(features));
  expect(levelOf()).toBe('x86-64');
  expect(levelOf(...avx2)).toBe('avx2');
  expect(levelOf(...avx2, 'avx_vnni')).toBe('avx-vnni');
  expect(levelOf(...avx512)).toBe('avx512');
  expect(levelOf(...avx512, 'avx512_vnni')).toBe('avx512-vnni');
  expect(levelOf(...avx512, 'avx512_vnni', 'vpclmulqdq', 'avx_vnni')).toBe('avx512-vpclmulqdq');
  // Its compiler would take vectors of 512 bits, which no shipped kernel has without the other features.
  expect(levelOf(...avx2, 'avx512f')).toBeUndefined();
  expect(levelOf('avx2')).toBeUndefined();
  expect(cpuLevelOf('arm64', new Set(['asimd']))).toBe('neon');
  expect(cpuLevelOf('arm64', new Set(['asimd', 'asimddp']))).toBe('neon-dotprod');
  expect(cpuLevelOf('arm64', new Set(['asimd', 'asimddp', 'i8mm']))).toBe('neon-i8mm');
  expect(cpuLevelOf('riscv64', new Set())).toBeUndefined();
});

describe(
  'the library that tells the features of a CPU',
  needs(hasCompiler && process.platform === 'linux' && process.arch === 'x64', 'no Linux on x64 with a C compiler'),
  () => {
    it('tells those of /proc/cpuinfo that decide the level', async () => {
      process.env = { ...before };
      const options = { compiler, cacheFolder: join(folder, 'cpu-id') };
      const names = await openNative(cpuIdSource, options, ({ path }) =>
        loadNative().functionIn(path, 'kvasir_cpu_features', 'str')(),
      );
      const told = new Set(String(names).trim().split(' '));
      const listed = (await listedFeatures())!;
      const deciding = new Set(
        Object.values(cpuLevels).flatMap(({ arch, features }) => (arch === 'x64' ? features : [])),
      );
      // Old versions of Linux do not list new features.
      expect([...deciding].filter((name) => listed.has(name) && !told.has(name))).toEqual([]);
      expect([...deciding].filter((name) => told.has(name)).length).toBeGreaterThan(0);
    });
  },
);
