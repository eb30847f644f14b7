/**
 * Two prefill servers, two decode servers, Redis and the router on this machine. A process that dies is started again.
 *
 *     npm install ioredis@6.0.0      # and redis-server or valkey-server from your system
 *     node dist/examples/disaggregated/start.js --model model.gguf --port 8000
 *
 * Kill any of the five processes while a client reads: no text changes.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { createRouter } from './router.ts';

const kvasir = fileURLToPath(new URL('../../bundle/src/main.js', import.meta.url));
const text = { type: 'string' } as const;
const { values } = parseArgs({
  options: { model: text, port: { type: 'string', default: '8000' }, 'redis-server': text, threads: text },
});
const children = new Map<string, ChildProcess>();
const stopping = new AbortController();

const redisPort = await freePort();
const redis = values['redis-server'] ?? 'redis-server';
void keepRunning('redis', redis, [
  ...['--port', `${redisPort}`, '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no'],
  ...['--maxmemory', '4gb', '--maxmemory-policy', 'allkeys-lru'],
]);

/** All servers are alike: each can compute prompts, decode, store and load. Which one does what is the router's choice. */
async function startServer(name: string): Promise<string> {
  const port = await freePort();
  void keepRunning(name, process.execPath, [
    ...[kvasir, 'serve', ...(values.model === undefined ? [] : [values.model]), '--port', `${port}`],
    ...['--threads', values.threads ?? '1', '--kv-tier', 'host:1GiB', '--kv-tier', `redis://127.0.0.1:${redisPort}`],
    ...['--log-level', 'warn'],
  ]);
  const origin = `http://127.0.0.1:${port}`;
  while (!stopping.signal.aborted) {
    const response = await fetch(`${origin}/health`).catch(() => undefined);
    if (response?.status === 200) break;
    await sleep(100);
  }
  return origin;
}

const prefill = await Promise.all(['prefill-1', 'prefill-2'].map(startServer));
const decode = await Promise.all(['decode-1', 'decode-2'].map(startServer));
const router = createRouter({ prefill, decode });
router.listen(Number(values.port), '127.0.0.1', () => {
  const { port } = router.address() as AddressInfo;
  console.log(`router http://127.0.0.1:${port}`);
});

for (const signal of ['SIGINT', 'SIGTERM'] as const)
  process.once(signal, () => {
    stopping.abort();
    router.close();
    router.closeAllConnections();
    for (const child of children.values()) child.kill('SIGTERM');
  });

async function keepRunning(name: string, program: string, args: readonly string[]): Promise<void> {
  while (!stopping.signal.aborted) {
    const child = spawn(program, args, { stdio: ['ignore', 'ignore', 'inherit'] });
    child.once('error', (error) => console.error(`${name} cannot be started: ${error.message}`));
    children.set(name, child);
    console.log(`${name} process ${child.pid}`);
    const [code, signal] = await once(child, 'close');
    if (stopping.signal.aborted) return;
    console.log(`${name} ended with ${signal ?? code}, and is started again`);
    await sleep(500);
  }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}
