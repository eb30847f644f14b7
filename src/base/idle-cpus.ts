import { readFileSync } from 'node:fs';
import { cpus } from 'node:os';
import type { Clock } from './clock.ts';

/** Time of all CPUs together since the start of the machine, in any unit. */
export interface CpuTimes {
  readonly idle: number;
  readonly total: number;
}

/** A shorter time says little: Linux counts in steps of 10 ms. */
const windowMs = 100;
/** A longer time says little about now: the engine may have been idle for most of it. */
const windowMaxMs = 500;
/** Fewer idle CPUs do not help: the compute threads leave short gaps between their kernels. */
const idlePart = 0.1;
const idleCpusMin = 0.5;

/** Whether the CPUs of the machine are in use, measured over the last tenths of a second. True if that is not known. */
export class IdleCpus {
  readonly #clock: Clock;
  readonly #count: number;
  readonly #read: () => CpuTimes;
  #times: CpuTimes;
  #readAtMs: number;
  #isBusy: boolean = false;

  constructor(clock: Clock, cpuCount: number, read: () => CpuTimes = readCpuTimes) {
    this.#clock = clock;
    this.#count = cpuCount;
    this.#read = read;
    this.#times = read();
    this.#readAtMs = clock.nowMs();
  }

  /** Cheap enough for many calls. */
  get isBusy(): boolean {
    const nowMs = this.#clock.nowMs();
    const elapsedMs = nowMs - this.#readAtMs;
    if (elapsedMs < windowMs) return this.#isBusy;
    const times = this.#read();
    const [idle, total] = [times.idle - this.#times.idle, times.total - this.#times.total];
    this.#times = times;
    this.#readAtMs = nowMs;
    if (elapsedMs > windowMaxMs) this.#isBusy = true;
    else if (total > 0) this.#isBusy = (idle / total) * this.#count < Math.max(idleCpusMin, idlePart * this.#count);
    return this.#isBusy;
  }
}

/** On Linux from the line that has the sum of all CPUs, because `cpus` is slow on large machines. */
export function readCpuTimes(): CpuTimes {
  const times = process.platform === 'linux' ? parseProcStat(readProcStat()) : undefined;
  return times ?? sumOf(cpus().map((cpu) => cpu.times));
}

/** The first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal, and parts of the first two. */
export function parseProcStat(text: string): CpuTimes | undefined {
  const counts = /^cpu +([\d ]+)$/m.exec(text)?.[1]?.split(' ').map(Number).slice(0, 8);
  if (counts === undefined || counts.length < 5) return undefined;
  const [, , , idle = 0, waiting = 0] = counts;
  return { idle: idle + waiting, total: counts.reduce((sum, count) => sum + count, 0) };
}

function readProcStat(): string {
  try {
    return readFileSync('/proc/stat', 'utf8');
  } catch {
    // Some sandboxes hide it.
    return '';
  }
}

function sumOf(all: readonly { readonly idle: number }[]): CpuTimes {
  let [idle, total] = [0, 0];
  for (const times of all) {
    idle += times.idle;
    for (const part of Object.values(times)) total += part;
  }
  return { idle, total };
}
