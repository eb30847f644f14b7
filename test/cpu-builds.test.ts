/**
 * Machines with different CPUs share one store (I2, docs/numerics.md). ggml chooses one of its builds for the CPU, and Kvasir's kernels
 * have a form for it. Here each machine is a process with the build and the form. All compute the same answers, and the same bytes in the
 * store, which are under the same fingerprint.
 */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ModelOptions } from '../bench/make-model/model-maker.ts';
import { armNode, lackingArm } from './support/arm64-machine.ts';
import { buildOnce } from './support/build-once.ts';
import { type BuildResult, lacking, type Machine, resultOf } from './support/engine-of-build.ts';
import { hasCompiler } from './support/has-compiler.ts';
import { inLongForm, isLongForm } from './support/long-form.ts';
import { needs } from './support/needs.ts';
import { longContexts, smallStates, temporaryFolder, writeTinyModel } from './support/tiny-model.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());

const mamba = { taps: 4, headDim: 64, stateSize: 64, groups: 1 };
/** A block has as many bytes as a state, so with these heads it has few tokens. */
const wideHeads = { ...smallStates, embedding: 256 };

/** Each architecture leaves other operations to ggml. */
const all: readonly ModelOptions[] = [
  { architecture: 'llama', type: 'Q8_0', ropeScaling: 'yarn' },
  { architecture: 'gpt-oss', type: 'MXFP4' },
  { architecture: 'llama', type: 'F16', ropeScaling: 'llama3' },
  { architecture: 'gemma3', type: 'Q8_0' },
  { architecture: 'gemma4', type: 'Q8_0' },
  { architecture: 'qwen3moe', type: 'Q4_K' },
  { architecture: 'lfm2', type: 'Q4_0' },
  // With 16 heads, all matrices have outputs in multiples of 16, as those of published models.
  { ...wideHeads, architecture: 'granitehybrid', type: 'Q6_K', mamba: { ...mamba, heads: 16 } },
  { ...wideHeads, architecture: 'qwen35moe', type: 'Q8_0', deltaNet: { taps: 4, heads: 16, keyHeads: 4, headDim: 64 } },
  { architecture: 'deepseek2', type: 'Q8_0', ropeScaling: 'yarn' },
  { architecture: 'mistral3', type: 'Q8_0', ...longContexts.mistral3 },
];
const models = inLongForm(all, all.slice(0, 2)).map((options) => ({
  path: folder.file(`${options.architecture}-${options.type}.gguf`),
  options,
}));
const paths = models.map(({ path }) => path);
/** QEMU needs a minute of CPU time for each. */
const representative = paths.filter((path) => /\/(qwen3moe|gpt-oss)/.test(path));

/** The first machine has the oldest CPU whose KV others share. */
const oldest: Machine = { build: 'haswell', cpuFlags: '-march=haswell' };
const builds = [
  // No operation that is left to ggml has fused multiply-adds.
  'sandybridge',
  // The others have a part of the instructions of these, for matmuls that our kernels compute.
  'alderlake',
  'skylakex',
  'zen4',
  'sapphirerapids',
];
const shortForm = ['sapphirerapids'];
/** In QEMU, where an engine needs more than a minute of CPU time. */
const armTimeoutMs = 1_200_000;
/** Later ones have other instructions for matmuls only, which `kernel-forms.test.ts` compares. */
const oldestArm = { build: 'armv8.2_1', cpuFlags: '-march=armv8.2-a+dotprod' };

const cannot = lacking(oldest.build);
const tools = { ...needs(cannot === undefined, cannot ?? ''), ...needs(hasCompiler, 'no C compiler') };

describe('machines whose CPUs have other builds of ggml', tools, () => {
  let expected: BuildResult;
  let expectedFiles: Readonly<Record<string, string>>;
  const answersOf = (some: readonly string[]) =>
    Object.fromEntries(some.map((path) => [basename(path), expected.answers[basename(path)]]));

  beforeAll(async () => {
    for (const { path, options } of models) await writeTinyModel(path, options);
    const store = folder.file('oldest');
    expected = await resultOf(oldest, paths, store);
    expectedFiles = filesIn(store);
    for (const fingerprint of fingerprintsOf(expectedFiles)) expect(fingerprint).toMatch(/^kv-[0-9a-f]{32}$/);
    expect(fingerprintsOf(expectedFiles)).toHaveLength(models.length);
  });

  for (const build of inLongForm(builds, shortForm)) {
    const reason = lacking(build) ?? '';
    it(`compute the same answers and the same stored bytes: ${build}`, needs(reason === '', reason), async () => {
      const store = folder.file(build);
      const { operations, answers } = await resultOf({ build }, paths, store);
      expect(operations).toBe(expected.operations);
      expect(answers).toEqual(expected.answers);
      const files = filesIn(store);
      expect(fingerprintsOf(files)).toEqual(fingerprintsOf(expectedFiles));
      expect(files).toEqual(expectedFiles);
    });
  }

  it('load the blocks of each other', async () => {
    const newest = builds.findLast((build) => lacking(build) === undefined)!;
    const some = inLongForm(paths, paths.slice(0, 1));
    const { answers, loaded } = await resultOf({ build: newest }, some, folder.file('oldest'));
    expect(answers).toEqual(answersOf(some));
    for (const path of some) expect(loaded[basename(path)], path).toBeGreaterThan(100);
  });

  const noArm = lackingArm() ?? '';
  const arm = (machine: Machine): Machine => ({ ...machine, arm: armNode(folder.file('arm')) });
  if (isLongForm) {
    const compare = async () => {
      await buildOnce(process.cwd());
      const store = folder.file(oldestArm.build);
      const { operations, answers } = await resultOf(arm(oldestArm), representative, store);
      expect(operations).toBe(expected.operations);
      expect(answers).toEqual(answersOf(representative));
      const files = filesIn(store);
      const fingerprints = fingerprintsOf(files);
      expect(fingerprints).toHaveLength(representative.length);
      const wanted = Object.entries(expectedFiles).filter(([name]) => fingerprints.includes(fingerprintOf(name)));
      expect(files).toEqual(Object.fromEntries(wanted));
    };
    it('compute the same with an ARM CPU', { ...needs(noArm === '', noArm), timeout: armTimeoutMs }, compare);

    const load = async () => {
      await buildOnce(process.cwd());
      const { answers, loaded } = await resultOf(oldest, representative, folder.file(oldestArm.build));
      expect(answers).toEqual(answersOf(representative));
      for (const path of representative) expect(loaded[basename(path)], path).toBeGreaterThan(100);
    };
    it(
      'load the blocks of a machine with the other kind of CPU',
      { ...needs(noArm === '', noArm), timeout: armTimeoutMs },
      load,
    );
  }

  const old = lacking('sandybridge') ?? '';
  it('have KV of their own if their kernels do not fuse multiply-adds', needs(old === '', old), async () => {
    const store = folder.file('not fused');
    await resultOf({ build: 'sandybridge', cpuFlags: '-march=sandybridge' }, paths.slice(0, 1), store);
    const [fingerprint] = fingerprintsOf(filesIn(store));
    expect(fingerprint).toMatch(/^kv-[0-9a-f]{32}$/);
    expect(fingerprintsOf(expectedFiles)).not.toContain(fingerprint);
  });
});

const fingerprintOf = (path: string): string => path.split('/')[0] ?? '';
const fingerprintsOf = (files: object): string[] => [...new Set(Object.keys(files).map(fingerprintOf))];

/** The digests of the blocks by path. */
function filesIn(store: string): Record<string, string> {
  const names = readdirSync(store, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.kv'));
  return Object.fromEntries(
    names.sort().map((name) => [
      name,
      createHash('sha256')
        .update(readFileSync(join(store, name)))
        .digest('hex'),
    ]),
  );
}
