import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir, totalmem } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { availableMemory } from './available-memory.ts';

const MIB = 1024 ** 2;
const roots: string[] = [];
afterEach(() => {
  for (const root of roots.splice(0)) rmSync(root, { recursive: true });
});

/** Files below a folder that stands for `/`. */
function machine(files: Readonly<Record<string, string>>, swapFree = 0): string {
  const root = mkdtempSync(join(tmpdir(), 'kvasir-memory-'));
  roots.push(root);
  const meminfo = `MemTotal:       16384000 kB\nMemFree:         1024000 kB\nMemAvailable:    8192000 kB\nSwapFree:     ${swapFree} kB\n`;
  for (const [path, text] of Object.entries({ 'proc/meminfo': meminfo, ...files })) {
    mkdirSync(join(root, dirname(path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
  return root;
}

const left = (root: string): number => availableMemory(root, 'linux').bytes / MIB;
const stat = (files: number, version: 1 | 2): string =>
  version === 2
    ? `anon 100\nfile ${files}\ninactive_file ${files - MIB}\nactive_file ${MIB}\n`
    : `cache 5\ntotal_cache ${files}\ntotal_inactive_file ${files - MIB}\ntotal_active_file ${MIB}\n`;

it('is the free memory of a machine without a limit, with its swap', () => {
  expect(left(machine({}))).toBe(8000);
  expect(left(machine({}, 1_024_000))).toBe(9000);
  const none = {
    'proc/self/cgroup': '0::/\n',
    'sys/fs/cgroup/memory.max': 'max\n',
    'sys/fs/cgroup/memory.current': '5\n',
  };
  expect(left(machine(none))).toBe(8000);
  expect(availableMemory(machine({}), 'linux').text).toBe('7.8 GiB are free on this machine');
});

it('is what the limit of a container leaves, without the cache of files', () => {
  const v2 = {
    'proc/self/cgroup': '0::/\n',
    'sys/fs/cgroup/memory.max': `${2000 * MIB}\n`,
    'sys/fs/cgroup/memory.current': `${1990 * MIB}\n`,
    'sys/fs/cgroup/memory.stat': stat(1500 * MIB, 2),
  };
  expect(left(machine(v2))).toBe(1510);
  expect(availableMemory(machine(v2), 'linux').text).toBe('1.5 GiB are left in this container');
  const v1 = {
    'proc/self/cgroup': '5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/docker/abc\n',
    'sys/fs/cgroup/memory/memory.limit_in_bytes': `${2000 * MIB}\n`,
    'sys/fs/cgroup/memory/memory.usage_in_bytes': `${1990 * MIB}\n`,
    'sys/fs/cgroup/memory/memory.stat': stat(1500 * MIB, 1),
  };
  expect(left(machine(v1))).toBe(1510);
  const unlimited = { ...v1, 'sys/fs/cgroup/memory/memory.limit_in_bytes': '9223372036854771712\n' };
  expect(left(machine(unlimited))).toBe(8000);
});

it('is the least of the limits of all cgroups around the process', () => {
  const limit = (folder: string, max: number, current: number) => ({
    [`${folder}/memory.max`]: `${max * MIB}\n`,
    [`${folder}/memory.current`]: `${current * MIB}\n`,
  });
  const files = {
    'proc/self/cgroup': '0::/system.slice/kvasir.service/main\n',
    ...limit('sys/fs/cgroup/system.slice', 3000, 2900),
    ...limit('sys/fs/cgroup/system.slice/kvasir.service', 1000, 100),
    'sys/fs/cgroup/system.slice/kvasir.service/main/memory.max': 'max\n',
  };
  expect(left(machine(files))).toBe(100);
});

it('counts the swap that a container may use', () => {
  const v2 = {
    'proc/self/cgroup': '0::/\n',
    'sys/fs/cgroup/memory.max': `${2000 * MIB}\n`,
    'sys/fs/cgroup/memory.current': `${500 * MIB}\n`,
    'sys/fs/cgroup/memory.swap.max': `${300 * MIB}\n`,
    'sys/fs/cgroup/memory.swap.current': `${100 * MIB}\n`,
  };
  expect([left(machine(v2)), left(machine(v2, 1_024_000))]).toEqual([1500, 1700]);
  expect(left(machine({ ...v2, 'sys/fs/cgroup/memory.swap.max': 'max\n' }, 1_024_000))).toBe(2500);
});

it('is all memory where free memory is unknown', () => {
  expect(availableMemory('/', 'darwin').bytes).toBe(totalmem());
  // Windows says how much is available; between two calls it varies.
  const { bytes, text } = availableMemory('/', 'win32');
  expect(bytes).toBeLessThanOrEqual(totalmem());
  expect(text).toMatch(/ are free on this machine$/);
  const root = mkdtempSync(join(tmpdir(), 'kvasir-memory-'));
  roots.push(root);
  expect(availableMemory(root, 'linux').bytes).toBe(totalmem());
});

it('is above 0 here, and at most the memory of this machine with its swap', () => {
  const { bytes } = availableMemory();
  expect(bytes).toBeGreaterThan(0);
  expect(Number.isFinite(bytes)).toBe(true);
});
