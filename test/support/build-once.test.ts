import { existsSync, mkdirSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { buildOnce } from './build-once.ts';
import { temporaryFolder } from './tiny-model.ts';

let folder: ReturnType<typeof temporaryFolder>;
let root: string;
let source: string;
let builds: number;
const count = (): void => {
  builds++;
};

beforeEach(() => {
  folder = temporaryFolder();
  root = folder.file('project');
  for (const name of ['src/kv', 'sim', 'bench', 'scripts', 'examples', 'test/support'])
    mkdirSync(join(root, name), { recursive: true });
  for (const name of ['package.json', 'tsconfig.json', 'tsconfig.build.json']) writeFileSync(join(root, name), '{}');
  source = join(root, 'src/kv/pool.ts');
  writeFileSync(source, 'export const pool = 1;');
  builds = 0;
});
afterEach(() => folder.remove());

it('compiles unchanged sources once', async () => {
  await buildOnce(root, count);
  await buildOnce(root, count);
  expect(builds).toBe(1);
});

it.each<[string, () => void]>([
  ['has another size', () => writeFileSync(source, 'export const pool = 22;')],
  ['was written again', () => utimesSync(source, 1, 2)],
  ['is new', () => writeFileSync(join(root, 'sim/world.ts'), '')],
])('compiles again if a source %s', async (_, change) => {
  await buildOnce(root, count);
  change();
  await buildOnce(root, count);
  expect(builds).toBe(2);
});

it('compiles again after a failure', async () => {
  await buildOnce(root, count);
  writeFileSync(source, 'export const pool = ;');
  const fail = (): void => {
    throw new Error('expression expected');
  };
  await expect(buildOnce(root, fail)).rejects.toThrow('expression expected');
  await buildOnce(root, count);
  expect(builds).toBe(2);
});

it('calls in parallel compile one after the other, and the lock is removed', async () => {
  await Promise.all([buildOnce(root, count), buildOnce(root, count), buildOnce(root, count)]);
  expect(builds).toBe(1);
  expect(existsSync(join(root, 'dist/.building.lock'))).toBe(false);
});

it('removes the lock of a process that has ended', async () => {
  mkdirSync(join(root, 'dist'));
  // Process ids are smaller.
  writeFileSync(join(root, 'dist/.building.lock'), '4194305');
  await buildOnce(root, count);
  expect(builds).toBe(1);
});
