import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { Prng } from '../src/base/prng.ts';
import { abandonedAfterMs } from '../src/connector/tier/disk/disk-folder.ts';
import { DiskTier } from '../src/connector/tier/disk/tier-disk.ts';
import { writerBytes, writerIdentity, writerKey } from './support/block-writer.ts';
import { inLongForm } from './support/long-form.ts';

/** Writers in separate processes are killed at random moments; readers find only complete blocks. */
const folder = mkdtempSync(join(tmpdir(), 'kvasir-kill-'));
const script = join(folder, 'js', 'test', 'support', 'block-writer.js');
const children: ChildProcess[] = [];

beforeAll(() => {
  const project = process.cwd();
  const config = {
    extends: join(project, 'tsconfig.json'),
    compilerOptions: {
      noEmit: false,
      rootDir: project,
      outDir: join(folder, 'js'),
      typeRoots: [join(project, 'node_modules', '@types')],
    },
    include: [],
    files: [
      join(project, 'test', 'support', 'block-writer.ts'),
      // The writer's threads.
      join(project, 'src', 'connector', 'tier', 'disk', 'disk-thread-main.ts'),
    ],
  };
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(config));
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
  symlinkSync(join(project, 'node_modules'), join(folder, 'node_modules'));
  const { status, stdout } = spawnSync('node_modules/.bin/tsc', ['-p', join(folder, 'tsconfig.json')], {
    encoding: 'utf8',
  });
  expect(status, stdout).toBe(0);
});
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
});
afterAll(() => rmSync(folder, { recursive: true }));

/** Resolves when the first block is stored; `written` continues to grow. */
async function startWriter(root: string, first: number, step: number, maxBytes: number) {
  const child = spawn(process.execPath, [script, root, `${first}`, `${step}`, `${maxBytes}`], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  children.push(child);
  const written: number[] = [];
  const lines = createInterface({ input: child.stdout });
  const isUnderWay = once(lines, 'line');
  lines.on('line', (line) => written.push(Number(line)));
  await isUnderWay;
  const kill = async (): Promise<void> => {
    const closed = once(lines, 'close');
    child.kill('SIGKILL');
    await closed;
  };
  return { written, kill };
}

const signal = new AbortController().signal;
const openTier = (root: string, wallNowMs: () => number = Date.now) =>
  DiskTier.open({ root, identity: writerIdentity, maxBytes: 1e9, wallNowMs });
const filesOf = (path: string, end: string): string[] =>
  readdirSync(path, { recursive: true })
    .map(String)
    .filter((name) => name.endsWith(end));

/**
 * Loads the blocks from `first` to `end` and returns the stored ones. Each stored block must be complete and right. The newest are first,
 * because writers evict the oldest meanwhile.
 */
async function readAll(tier: DiskTier, end: number, first = 0): Promise<Set<number>> {
  const found = new Set<number>();
  const into = new Uint8Array(writerIdentity.blockBytes);
  for (let n = end - 1; n >= first; n--) {
    const reason = await tier.load(writerKey(n), into, signal);
    if (reason === undefined) {
      expect(Buffer.compare(into, writerBytes(n)), `block ${n}`).toBe(0);
      found.add(n);
    } else expect(reason, `block ${n}`).toBe('missing');
  }
  return found;
}

describe('DiskTier after kill -9', () => {
  it('has only complete blocks, and all blocks that the killed writer reported as stored', async () => {
    const seed = 1;
    const prng = new Prng(seed);
    let interrupted = 0;
    // Repeats until one writer was killed while it wrote: otherwise the test shows nothing.
    for (let round = 0; round < inLongForm(8, 4) || interrupted === 0; round++) {
      const root = join(folder, `round ${round}`);
      const { written, kill } = await startWriter(root, 0, 1, 1e9);
      await new Promise((resolve) => setTimeout(resolve, prng.between(0, 40)));
      await kill();
      const tier = await openTier(root);
      interrupted += filesOf(tier.path, '.tmp').length;
      const found = await readAll(tier, Math.max(...written) + 8);
      for (const n of written) expect(found.has(n), `seed ${seed}, round ${round}: block ${n}`).toBe(true);
      await tier.close();
      // A process that stores a block a day later removes the temporary files of the killed process.
      const later = await openTier(root, () => Date.now() + 2 * abandonedAfterMs);
      await later.store(writerKey(1e6), writerBytes(1e6), signal);
      expect(filesOf(later.path, '.tmp')).toEqual([]);
      await later.close();
      rmSync(root, { recursive: true });
    }
  });

  it('serves the other writer and a reader when one of two writers is killed in a folder with a limit', async () => {
    const root = join(folder, 'shared');
    const maxBytes = 24 * (writerIdentity.blockBytes + 160);
    const [even, odd] = [await startWriter(root, 0, 2, maxBytes), await startWriter(root, 1, 2, maxBytes)];
    const tier = await openTier(root);
    let seen = 0;
    // Repeats until a block was read: a reader that is slow beside the writers may find none.
    for (let i = 0; i < 6 || seen === 0; i++) {
      const newest = Math.max(...even.written, ...odd.written);
      // The folder has the newest 24 blocks. The writers store more while the test reads.
      seen += (await readAll(tier, newest + 1, Math.max(0, newest - 2 * 24))).size;
      if (i === 2) await even.kill();
    }
    const before = odd.written.length;
    await expect.poll(() => odd.written.length).toBeGreaterThan(before);
    await odd.kill();
    expect(filesOf(tier.path, '.kv').length).toBeLessThan(24 * 2);
  });
});
