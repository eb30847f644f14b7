/** Memory that a process may still fill before the system ends it or swaps beyond all measure. */
import { readFileSync } from 'node:fs';
import { freemem, totalmem } from 'node:os';
import { join } from 'node:path';
import { formatBytes } from './bytes.ts';
import type { MemoryLimit } from './memory-limit.ts';

/**
 * On Linux the free memory of the machine, or what the limit of a container (cgroup v1 or v2) leaves, if that is less. Pages that only cache
 * files are free: the system drops them. So is swap. On Windows, what the system calls available, which counts in the same way. On macOS all memory, because free
 * memory there excludes what the system would give.
 *
 * `process.availableMemory()` counts the cache of files as used, so a container that has just read or downloaded a model seems full.
 */
export function availableMemory(root = '/', platform: NodeJS.Platform = process.platform): MemoryLimit {
  const machine = platform === 'linux' ? ofMachine(root) : undefined;
  if (platform === 'win32') {
    const bytes = freemem();
    return { bytes, text: `${formatBytes(bytes)} are free on this machine` };
  }
  if (machine === undefined) {
    const bytes = totalmem();
    return { bytes, text: `this machine has ${formatBytes(bytes)} of memory` };
  }
  const { bytes, swapBytes } = machine;
  const container = Math.min(...cgroupsOf(root).map((cgroup) => leftIn(cgroup, swapBytes)));
  if (container < bytes + swapBytes)
    return { bytes: container, text: `${formatBytes(container)} are left in this container` };
  return { bytes: bytes + swapBytes, text: `${formatBytes(bytes + swapBytes)} are free on this machine` };
}

function ofMachine(root: string): { readonly bytes: number; readonly swapBytes: number } | undefined {
  const text = read(join(root, 'proc/meminfo')) ?? '';
  const kibibytes = (name: string): number => Number(new RegExp(`^${name}: *(\\d+) kB$`, 'm').exec(text)?.[1]);
  const bytes = kibibytes('MemAvailable') * 1024;
  return Number.isNaN(bytes) ? undefined : { bytes, swapBytes: kibibytes('SwapFree') * 1024 || 0 };
}

/** Files of a limit. */
interface CgroupFiles {
  readonly folder: string;
  readonly version: 1 | 2;
}

/** The cgroup of this process and those around it, each of which may have a limit. In a container, the outermost is mounted as the root. */
function cgroupsOf(root: string): CgroupFiles[] {
  const lines = (read(join(root, 'proc/self/cgroup')) ?? '').split('\n');
  return lines.flatMap((line) => {
    const [, id, controllers = '', path = '/'] = /^(\d+):([^:]*):(.*)$/.exec(line) ?? [];
    const isOfMemory = controllers.split(',').includes('memory');
    if (id === undefined || !(isOfMemory || (id === '0' && controllers === ''))) return [];
    const version = isOfMemory ? 1 : 2;
    const mount = join(root, 'sys/fs/cgroup', isOfMemory ? 'memory' : '');
    const parts = path.split('/').filter((part) => part !== '' && part !== '..');
    return Array.from({ length: parts.length + 1 }, (_, depth): CgroupFiles => {
      const folder = join(mount, ...parts.slice(0, depth));
      return { folder, version };
    });
  });
}

function leftIn({ folder, version }: CgroupFiles, swapBytes: number): number {
  const number = (name: string): number => {
    const text = read(join(folder, name))?.trim();
    return text === undefined || text === '' || text === 'max' ? Number.NaN : Number(text);
  };
  const [limitFile, usedFile] =
    version === 2 ? ['memory.max', 'memory.current'] : ['memory.limit_in_bytes', 'memory.usage_in_bytes'];
  const [limit, used] = [number(limitFile), number(usedFile)];
  // Version 1 has a number near 2 ** 63 for none.
  if (Number.isNaN(limit) || Number.isNaN(used) || limit > 2 ** 62) return Number.POSITIVE_INFINITY;
  const stat = read(join(folder, 'memory.stat')) ?? '';
  const inStat = (name: string): number => Number(new RegExp(`^${name} (\\d+)$`, 'm').exec(stat)?.[1] ?? 0);
  const total = version === 2 ? '' : 'total_';
  const cached = inStat(`${total}inactive_file`) + inStat(`${total}active_file`);
  const swapMax =
    version === 2
      ? number('memory.swap.max') - number('memory.swap.current')
      : number('memory.memsw.limit_in_bytes') - limit;
  const swap = Number.isNaN(swapMax) ? swapBytes : Math.min(swapBytes, Math.max(0, swapMax));
  return Math.max(0, limit - Math.max(0, used - cached)) + swap;
}

function read(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
}
