import { closeSync, constants, openSync, readdirSync, readFileSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Sample } from './growth.ts';

/** Aborted requests, transfers and replaced processes end within this time. */
const settleMs = 60_000;
const idle = [
  'vllm:num_requests_running',
  'vllm:num_requests_waiting',
  'vllm:kv_cache_usage_perc',
  'kvasir:open_transfers',
];

/** The values of `/metrics` without buckets, by name and labels. */
export async function metricsOf(origin: string): Promise<Record<string, number>> {
  const response = await fetch(`${origin}/metrics`).catch(() => undefined);
  const text = (await response?.text()) ?? '';
  const wanted =
    /^(vllm:(num_|kv_cache|prompt_tokens_by|generation|request_success)|kvasir:(rec|lost|load_f|tier_(loaded|stored)_bytes|open))/;
  return Object.fromEntries(
    text
      .split('\n')
      .filter((line) => wanted.test(line) && !/_(bucket|sum|count)/.test(line))
      .map((line) => {
        const at = line.lastIndexOf(' ');
        const name = line
          .slice(0, at)
          .replace(/model_name="[^"]*",engine="[^"]*",?|,?engine="[^"]*"|model_name="[^"]*"/g, '');
        return [name.replace(/\{,?\}/, ''), Number(line.slice(at + 1))];
      }),
  );
}

/** Waits until a server without requests has ended all work. The result has what has not ended in time. */
export async function settled(
  origin: string,
  stop: AbortSignal,
): Promise<{ readonly counters: Readonly<Record<string, number>>; readonly problems: readonly string[] }> {
  const deadlineMs = Date.now() + settleMs;
  for (;;) {
    const counters = await metricsOf(origin);
    const health = await fetch(`${origin}/health`).catch(() => undefined);
    await health?.arrayBuffer();
    const busy = idle.filter((name) => counters[name] !== 0);
    if (busy.length === 0 && health?.ok === true) return { counters, problems: [] };
    if (Date.now() > deadlineMs || stop.aborted) {
      const problems = busy.map((name) => `${name} is ${counters[name]} ${settleMs / 1000} s after the last request`);
      return { counters, problems: stop.aborted ? [] : [...problems, `/health has status ${health?.status}`] };
    }
    await sleep(100);
  }
}

/**
 * Ends the reads that injected faults let hang in the system: their threads would be counted. Such a read ends if any process writes to
 * its FIFO (`HungCalls`).
 */
export function releaseHungReads(processIds: readonly number[]): void {
  const prefixes = processIds.map((id) => `kvasir-hung-${id}-`);
  const folders = readdirSync(tmpdir()).filter((name) => prefixes.some((prefix) => name.startsWith(prefix)));
  for (const folder of folders.map((name) => join(tmpdir(), name))) {
    for (const name of readdirSync(folder)) {
      try {
        const file = openSync(join(folder, name), constants.O_RDWR | constants.O_NONBLOCK);
        writeSync(file, new Uint8Array(64));
        closeSync(file);
      } catch {
        // The server has removed it meanwhile.
      }
    }
  }
}

/** What a probe writes: at first an empty object. */
type Line = Omit<Sample, 'seconds' | 'requests'> & { readonly warning?: string };

/** Asks the probes of processes for samples. */
export class Probes {
  readonly #folder: string;

  constructor(folder: string) {
    this.#folder = folder;
  }

  /** Undefined: the process has ended, has no probe yet, or does not answer. */
  async sample(processId: number, at: Pick<Sample, 'seconds' | 'requests'>): Promise<Sample | undefined> {
    const before = this.#lines(processId).length;
    if (before === 0) return undefined;
    try {
      process.kill(processId, 'SIGUSR2');
    } catch {
      return undefined;
    }
    const deadlineMs = Date.now() + settleMs;
    while (Date.now() < deadlineMs) {
      const counts = this.#lines(processId)
        .slice(before)
        .find((line) => 'resources' in line);
      if (counts !== undefined) return { ...at, ...counts };
      await sleep(20);
    }
    return undefined;
  }

  /** Of Node, about all processes. */
  warnings(): string[] {
    const names = readdirSync(this.#folder).map((name) => Number.parseInt(name, 10));
    return names.flatMap((id) => this.#lines(id).flatMap(({ warning }) => warning ?? []));
  }

  /** A last line that is not complete is left out. */
  #lines(processId: number): Line[] {
    try {
      const lines = readFileSync(join(this.#folder, `${processId}.jsonl`), 'utf8').split('\n');
      return lines.slice(0, -1).map((line) => JSON.parse(line) as Line);
    } catch {
      return [];
    }
  }
}
