import { readdir, readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import type { RandomTokens } from '../random-tokens.ts';
import type { ServerPeer } from '../subject/server-peer.ts';

/** A server under measurement. */
export interface MeasuredServer {
  readonly origin: string;
  readonly processId: number;
  readonly peer: ServerPeer;
}

export interface Lengths {
  readonly promptLength: number;
  readonly generateLength: number;
}

/** Of one prompt and one stream, one after the other. */
export interface ServerSample {
  readonly promptTokensPerSecond: number;
  readonly decodeTokensPerSecond: number;
  /** Milliseconds of CPU time that the server used for a token of the stream. */
  readonly decodeCpuMs: number;
  /** Milliseconds until `/health` answered, while the prompt was computed. */
  readonly healthMs: readonly number[];
}

/** Between two requests to `/health`. */
const pauseMs = 10;

export async function sampleServer(
  server: MeasuredServer,
  random: RandomTokens,
  { promptLength, generateLength }: Lengths,
  signal: AbortSignal,
): Promise<ServerSample> {
  const healthMs: number[] = [];
  let isComputing = true;
  const startedMs = performance.now();
  const prefill = secondsOf(server, random.take(promptLength), 1).finally(() => {
    isComputing = false;
  });
  prefill.catch(() => undefined);
  while (isComputing) {
    healthMs.push(await healthLatency(server.origin, signal));
    await sleep(pauseMs);
  }
  await prefill;
  const promptSeconds = (performance.now() - startedMs) / 1000;
  const stream = await secondsOf(server, random.take(16), generateLength + 1);
  return {
    promptTokensPerSecond: promptLength / promptSeconds,
    decodeTokensPerSecond: generateLength / stream.seconds,
    decodeCpuMs: stream.cpuMs / generateLength,
    healthMs,
  };
}

/** From the first tokens of an answer to its last. */
async function secondsOf({ peer, processId }: MeasuredServer, prompt: Int32Array, maxTokens: number) {
  let first: { readonly atMs: number; readonly cpuMs: number } | undefined;
  for await (const { tokens } of peer.complete(prompt, maxTokens)) {
    if (tokens.length > 0) first ??= { atMs: performance.now(), cpuMs: await processCpuMs(processId) };
  }
  const from = first ?? { atMs: performance.now(), cpuMs: 0 };
  return {
    seconds: (performance.now() - from.atMs) / 1000,
    cpuMs: (await processCpuMs(processId)) - from.cpuMs,
  };
}

async function healthLatency(origin: string, signal: AbortSignal): Promise<number> {
  const startedMs = performance.now();
  const response = await fetch(`${origin}/health`, { signal });
  await response.arrayBuffer();
  return performance.now() - startedMs;
}

/** The CPU time of all threads that run now; 0 on systems other than Linux. */
async function processCpuMs(processId: number): Promise<number> {
  const folder = `/proc/${processId}/task`;
  let nanoseconds = 0;
  for (const thread of await readdir(folder).catch(() => [])) {
    const stat = await readFile(`${folder}/${thread}/schedstat`, 'latin1').catch(() => '0');
    nanoseconds += Number(stat.split(' ')[0]);
  }
  return nanoseconds / 1e6;
}
