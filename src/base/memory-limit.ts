import { totalmem } from 'node:os';
import { formatBytes } from './bytes.ts';

export interface MemoryLimit {
  readonly bytes: number;
  /** For a sentence: `this machine has 16 GiB of memory`. */
  readonly text: string;
}

/** What this process may use at most: the memory of the machine, or the limit of its container (cgroup) if that is smaller. */
export function memoryLimit(
  machineBytes = totalmem(),
  // 0 or more than the machine has: no limit.
  containerBytes: number | undefined = process.constrainedMemory(),
): MemoryLimit {
  if (containerBytes !== undefined && containerBytes > 0 && containerBytes < machineBytes)
    return { bytes: containerBytes, text: `this container may use ${formatBytes(containerBytes)} of memory` };
  return { bytes: machineBytes, text: `this machine has ${formatBytes(machineBytes)} of memory` };
}
