import { constants } from 'node:fs';
import { access, readFile } from 'node:fs/promises';
import { availableParallelism, cpus, freemem, totalmem } from 'node:os';
import { dirname } from 'node:path';
import { defaultCacheFolder } from '../../base/cache-folder.ts';
import { listedFeatures } from '../../native/cpu-features.ts';
import { type CpuLevelName, cpuLevelOf } from '../../native/cpu-level.ts';

/** The properties of this machine that decide which kernels run and how fast. */
export interface MachineReport {
  readonly platform: string;
  readonly node: string;
  readonly cpu: {
    readonly model: string;
    /** Of prebuilt kernels; absent if none is for this CPU, or if only the package's library could tell. */
    readonly level?: CpuLevelName;
    /** Instructions for vectors; absent if the system does not list them. */
    readonly features?: readonly string[];
  };
  /** `default`: the threads of an engine without `--threads`. `quota`: CPUs that the container may use. */
  readonly threads: { readonly default: number; readonly quota?: number; readonly hasTwoPerCore: boolean };
  readonly memory: { readonly totalBytes: number; readonly freeBytes: number; readonly hugePages?: string };
  readonly cache: { readonly folder?: string; readonly isWritable: boolean };
}

export async function reportMachine(): Promise<MachineReport> {
  const listed = await listedFeatures();
  const level = listed === undefined ? undefined : cpuLevelOf(process.arch, listed);
  const quota = quotaIn(await contentOf('/sys/fs/cgroup/cpu.max'));
  const hugePages = /\[(\w+)\]/.exec(await contentOf('/sys/kernel/mm/transparent_hugepage/enabled'))?.[1];
  const folder = defaultCacheFolder();
  return {
    platform: `${process.platform}-${process.arch}`,
    node: process.version,
    cpu: {
      model: cpus()[0]?.model.trim() ?? 'unknown',
      ...(level === undefined ? {} : { level }),
      ...(listed === undefined ? {} : { features: [...listed].filter((name) => ofVectors.test(name)) }),
    },
    threads: {
      default: availableParallelism(),
      ...(quota === undefined ? {} : { quota }),
      hasTwoPerCore: (await contentOf('/sys/devices/system/cpu/smt/active')).trim() === '1',
    },
    memory: {
      totalBytes: totalmem(),
      freeBytes: freemem(),
      ...(hugePages === undefined ? {} : { hugePages }),
    },
    cache: {
      ...(folder === undefined ? {} : { folder }),
      isWritable: folder !== undefined && (await isWritable(folder)),
    },
  };
}

const ofVectors = /^(ssse3|sse4_[12]|avx\w*|fma|f16c|amx\w*|asimd\w*|sve\w*|i8mm|bf16|fphp|vpclmulqdq)$/;

/** Of cgroup 2: the quota and the period in microseconds. Undefined if there is no limit. */
export function quotaIn(cpuMax: string): number | undefined {
  const [quota, period] = cpuMax.trim().split(/\s+/).map(Number);
  return quota !== undefined && period !== undefined && quota > 0 && period > 0 ? quota / period : undefined;
}

const contentOf = (path: string): Promise<string> => readFile(path, 'utf8').catch(() => '');

/** Of the folder, or of the nearest folder above that exists: the command does not make it. */
async function isWritable(folder: string): Promise<boolean> {
  try {
    await access(folder, constants.W_OK);
    return true;
  } catch (error) {
    const isMissing = (error as NodeJS.ErrnoException).code === 'ENOENT';
    return isMissing && dirname(folder) !== folder && isWritable(dirname(folder));
  }
}
