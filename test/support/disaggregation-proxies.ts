/** Proxies of others for prefill and decode on different servers: vLLM's `toy_proxy_server.py`, unchanged, and llm-d's routing sidecar. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { defaultCacheFolder } from '../../src/base/cache-folder.ts';
import { pdSidecar } from './llm-d.ts';
import { freePort } from './redis-server.ts';

/** `.ci/run` installs this version; `.ci/install-vllm-proxy` has the commands. */
const vllmVersion = '0.33.0';
const folder = join(defaultCacheFolder() ?? '', `vllm-proxy-${vllmVersion}`);

export const hasVllmProxy = existsSync(join(folder, 'toy_proxy_server.py'));
export const noVllmProxy = 'no vLLM proxy: run .ci/install-vllm-proxy';

const processes = new Set<ChildProcess>();
const killAll = (): void => {
  for (const process of processes) process.kill('SIGKILL');
};
process.on('exit', killAll);

export interface RunningProxy {
  readonly origin: string;
  stop(): Promise<void>;
}

/** The proxy asks the prefill servers in turn, and the decode servers in turn. */
export function startVllmProxy(prefill: readonly number[], decode: readonly number[]): Promise<RunningProxy> {
  const ports = (name: string, numbers: readonly number[]): string[] => [
    `--${name}-hosts`,
    ...numbers.map(() => '127.0.0.1'),
    `--${name}-ports`,
    ...numbers.map(String),
  ];
  const servers = [...ports('prefiller', prefill), ...ports('decoder', decode)];
  const command = [join(folder, 'bin', 'python'), join(folder, 'toy_proxy_server.py'), ...servers];
  return start(command, '/healthcheck');
}

/** In front of one decode server. Requests name their prefill server in the header `x-prefiller-host-port`. */
export const startSidecar = (decode: number): Promise<RunningProxy> =>
  start([pdSidecar, '--vllm-port', `${decode}`, '--kv-connector', 'nixlv2', '--secure-proxy=false'], '/v1/models');

async function start([program, ...args]: readonly string[], path: string): Promise<RunningProxy> {
  const port = await freePort();
  const child = spawn(program!, [...args, '--port', `${port}`], { stdio: ['ignore', 'ignore', 'pipe'] });
  processes.add(child);
  const exited = once(child, 'exit');
  let log = '';
  child.stderr.on('data', (piece) => (log += piece));
  const origin = `http://127.0.0.1:${port}`;
  while (!(await answers(origin + path))) {
    if (child.exitCode !== null) throw new Error(`${program} ended with ${child.exitCode}:\n${log}`);
    await wait(50);
  }
  const stop = async (): Promise<void> => {
    processes.delete(child);
    child.kill('SIGKILL');
    await exited;
  };
  return { origin, stop };
}

const answers = (url: string): Promise<boolean> =>
  fetch(url).then(
    ({ ok }) => ok,
    () => false,
  );
