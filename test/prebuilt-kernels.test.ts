/** Kernels that `npm run kernels` builds: an engine without a compiler has them, and all targets can be built. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildKernels } from '../scripts/prebuild/build-kernels.ts';
import { type Target, targets } from '../scripts/prebuild/targets.ts';
import { createEngine } from '../src/compose.ts';
import { F16 } from '../src/ggml/types.ts';
import { listedFeatures } from '../src/native/cpu-features.ts';
import { type CpuLevelName, cpuLevelOf, cpuLevels } from '../src/native/cpu-level.ts';
import { type PrebuiltManifest, platformName } from '../src/native/prebuilt.ts';
import { attentionSource } from '../src/runner/attention/attention-kernel.ts';
import { publishedShapes } from '../src/runner/attention/published-shapes.ts';
import { type ShippedKernel, shippedKernels } from '../src/runner/shipped-kernels.ts';
import { bundledKernels } from './support/bundled-kernels.ts';
import { promptOf } from './support/drive.ts';
import { hasCompiler } from './support/has-compiler.ts';
import { isLongForm } from './support/long-form.ts';
import { needs } from './support/needs.ts';
import { quickCompiler } from './support/quick-compiler.ts';
import { temporaryFolder } from './support/tiny-model.ts';
import { noZig, zig } from './support/zig.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());

/** Changes variables of this process, whose C libraries read them too, for the time of the work. */
async function withEnvironment<T>(changes: Readonly<Record<string, string>>, work: () => Promise<T>): Promise<T> {
  const names = Object.keys(changes);
  const before = names.map((name) => process.env[name]);
  Object.assign(process.env, changes);
  try {
    return await work();
  } finally {
    for (const [i, name] of names.entries()) {
      if (before[i] === undefined) delete process.env[name];
      else process.env[name] = before[i];
    }
  }
}

const ownTarget = targets.find(({ name }) => name === platformName());
const ownLevel = cpuLevelOf(process.arch, (await listedFeatures()) ?? new Set());
const build = (target: Target, kernels: readonly ShippedKernel[]) =>
  buildKernels(target, kernels, { zig: zig!, folder: folder.file('prebuilt'), cacheFolder: folder.file('zig-cache') });

/** The tokens and the events of an engine. */
async function answer() {
  const events: string[] = [];
  const onEvent = ({ message }: { readonly message: string }): void => void events.push(message);
  const model = 'models/kvasir-demo.gguf';
  const engine = await createEngine({ model, threads: 1, kvCacheMemory: 16 << 20, onEvent });
  try {
    const tokens: unknown[] = [];
    const params = { maxTokens: 12, temperature: 0, ignoreEos: true, logprobs: 3 };
    for await (const { tokenIds, logprobs } of engine.generate({ prompt: promptOf(40, 3, 250), params }))
      tokens.push(...tokenIds, logprobs);
    return { tokens, events, attention: engine.model.attention };
  } finally {
    await engine.close();
  }
}

describe('an engine with prebuilt kernels', {
  ...needs(zig !== undefined, noZig),
  ...needs(ownTarget !== undefined && ownLevel !== undefined && ownLevel !== 'x86-64', 'no kernels for this CPU'),
}, () => {
  beforeAll(async () => {
    if (zig === undefined || ownTarget === undefined || ownLevel === undefined) return;
    const kernels = bundledKernels(new Set([ownLevel, ...cpuLevels[ownLevel].below]));
    // Only Linux has the barrier.
    const count = ownTarget.glibcTarget === undefined ? kernels.length - 1 : kernels.length;
    expect((await build(ownTarget, kernels)).libraries).toBe(count);
  });

  it('has its kernels without a compiler, a home, a cache folder and a temporary folder', async () => {
    const nowhere = { PATH: '/nonexistent', HOME: '/proc/nothing', TMPDIR: '/proc/nothing', XDG_CACHE_HOME: '' };
    const prebuilt = { ...nowhere, CC: '', KVASIR_PREBUILT: folder.file('prebuilt') };
    const found = await withEnvironment(prebuilt, answer);
    expect(found.events).toEqual([]);
    expect(found.attention).toContain('native kernel');
    if (!hasCompiler) return;
    const own = { CC: quickCompiler(folder.file('quick-cc')), XDG_CACHE_HOME: folder.file('cache') };
    const compiled = await withEnvironment({ ...own, KVASIR_PREBUILT: 'off' }, answer);
    expect(compiled.attention).toBe(found.attention);
    expect(compiled.tokens).toEqual(found.tokens);
  });
});

/** What a library of a target must be: the bytes at its start or in its header, by target. */
const isFor: Readonly<Record<string, (library: Buffer) => boolean>> = {
  'linux-x64': (library) => library.readUInt32BE(0) === 0x7f454c46 && library.readUInt16LE(18) === 0x3e,
  'linux-arm64': (library) => library.readUInt32BE(0) === 0x7f454c46 && library.readUInt16LE(18) === 0xb7,
  'darwin-arm64': (library) => library.readUInt32LE(0) === 0xfeedfacf && library.readUInt32LE(4) === 0x0100000c,
  'darwin-x64': (library) => library.readUInt32LE(0) === 0xfeedfacf && library.readUInt32LE(4) === 0x01000007,
  'win32-x64': (library) => {
    const header = library.readUInt32LE(0x3c);
    return library.toString('latin1', header, header + 2) === 'PE' && library.readUInt16LE(header + 4) === 0x8664;
  },
};

describe.each(targets)('for $name', needs(zig !== undefined, noZig), (target) => {
  it('kernels can be built, have the format of the platform and export their functions', async () => {
    const shape = { headDim: 64, group: 2, kvType: F16 };
    const attention = { name: 'attention', source: attentionSource(shape), levels: [] };
    // In the long form, every source is compiled once for each architecture. Targets of one architecture differ in how libraries are linked.
    const isWhole = isLongForm && target.extension === 'so';
    const others = shippedKernels()
      .filter(({ name }) => (isWhole ? /^(?!attention)/ : /^(sampling|checksums|CPU features)$/).test(name))
      .map((kernel) => ({
        ...kernel,
        levels: kernel.levels.filter((level) => cpuLevels[level].arch === target.arch).slice(-1),
      }));
    const levels: CpuLevelName[] = target.arch === 'x64' ? ['avx2'] : ['neon'];
    const place = join('targets', target.name);
    const options = { zig: zig!, folder: folder.file('targets'), cacheFolder: folder.file('zig-cache') };
    const { libraries } = await buildKernels(target, [{ ...attention, levels }, ...others], options);
    expect(libraries).toBeGreaterThanOrEqual(2);
    const manifest = JSON.parse(readFileSync(folder.file(join(place, 'manifest.json')), 'utf8')) as PrebuiltManifest;
    const files = Object.values(manifest.libraries).flatMap((byLevel) => Object.values(byLevel));
    expect(files).toHaveLength(libraries);
    for (const { file } of files) {
      const library = readFileSync(folder.file(join(place, file)));
      expect([file, isFor[target.name]!(library)]).toEqual([file, true]);
      const names = library.toString('latin1');
      // The libraries are stripped, so a function's name is there only if it is exported. Formats may share prefixes of names.
      if (file.startsWith('paged-attention')) expect(names).toContain('attend_pointer');
      if (file.startsWith('logits')) expect(names).toContain('best_of_shares_pointer');
      const needsLibc = target.extension === 'so' && file.startsWith('barrier');
      if (target.extension === 'so') expect([file, names.includes('libc.so')]).toEqual([file, needsLibc]);
      // Functions of a compiler's library, which the process does not have: such a library could not be loaded. A library that Zig's
      // `cc` links has them itself.
      if (!needsLibc) expect([file, /__aarch64_\w+/.exec(names)?.[0]]).toEqual([file, undefined]);
      // Beside its own name, only Windows's C library: no DLL of a compiler.
      if (target.extension === 'dll')
        for (const [name] of names.matchAll(/[\w-]+\.dll/g)) expect(['kernel.dll', 'ucrtbase.dll']).toContain(name);
    }
  });
});

it('every shape of published models has one library for each level', () => {
  const keys = publishedShapes.map((shape) => JSON.stringify(attentionSource(shape).definitions));
  expect(new Set(keys).size).toBe(publishedShapes.length);
  const names = shippedKernels().map(({ name }) => name);
  expect(new Set(names).size).toBe(names.length);
});
