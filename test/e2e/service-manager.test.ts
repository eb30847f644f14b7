/** The built command as a service: below a service manager, and as process 1 of a container. */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { buildCommand, killCommands, main, serve, smallPool } from '../support/cli-process.ts';
import { DatagramReceiver } from '../support/datagram-receiver.ts';
import { isLongForm } from '../support/long-form.ts';
import { needs } from '../support/needs.ts';
import { childrenOf, commandOf } from '../support/processes.ts';

const folder = mkdtempSync(join(tmpdir(), 'kvasir-service-'));
const afters: (() => unknown)[] = [];
beforeAll(buildCommand, 60_000);
afterEach(() => {
  killCommands();
  for (const after of afters.splice(0)) after();
});
afterAll(() => rmSync(folder, { recursive: true }));

const patience = { timeout: 120_000, interval: 100 };
const isLinux = process.platform === 'linux';

it('a service manager is told the load, the start and the end', needs(isLinux, 'not Linux'), async () => {
  const path = join(folder, 'notify');
  const manager = new DatagramReceiver(path);
  const got: string[] = [];
  const last = () => got.push(...manager.read()) && got.at(-1);
  const server = await serve([], { NOTIFY_SOCKET: path });
  const { port } = new URL(server.origin);
  await expect.poll(last, patience).toBe(`READY=1\nSTATUS=The server serves kvasir-demo on port ${port}.`);
  expect(got[0]).toMatch(/^STATUS=The server opens kvasir-demo\.gguf\.\nEXTEND_TIMEOUT_USEC=120000000$/);
  await server.stop();
  expect(last()).toBe('STOPPING=1\nSTATUS=The server shuts down.\nEXTEND_TIMEOUT_USEC=35000000');
  manager.close();
});

const namespaces = ['--pid', '--fork', '--mount-proc', '--kill-child'];
const canUnshare = isLinux && spawnSync('unshare', [...namespaces, 'true']).status === 0;

/** The built command as process 1 of a new namespace, which a container has too. */
async function serveAsInit(...args: string[]) {
  const command = [process.execPath, main, 'serve', '--port', '0', ...smallPool, ...args];
  const child = spawn('unshare', [...namespaces, ...command]);
  const exited = once(child, 'exit');
  let log = '';
  child.stderr.on('data', (piece) => (log += piece));
  await expect.poll(() => childrenOf(child.pid!).length, patience).toBe(1);
  const [id] = childrenOf(child.pid!);
  afters.push(() => child.kill('SIGKILL'));
  const serves = () => expect.poll(() => log, patience).toMatch(/ address=http/);
  return { child, id: id!, exited, serves, log: () => log };
}

it('as process 1, the server ends at SIGTERM, also while it loads', needs(canUnshare, 'no unshare'), async () => {
  const server = await serveAsInit();
  await server.serves();
  process.kill(server.id, 'SIGTERM');
  expect(await server.exited).toEqual([0, null]);
  expect(server.log()).toContain('shutting down: no request is running');

  if (!isLongForm) return;
  const early = await serveAsInit();
  await expect.poll(early.log, patience).toMatch(/listening on/);
  process.kill(early.id, 'SIGTERM');
  expect([0, 143]).toContain((await early.exited)[0]);
});

it('as process 1, the server leaves no zombies of workers and orphans', needs(canUnshare, 'no unshare'), async () => {
  const server = await serveAsInit('--pipeline-parallel-size', '2');
  await server.serves();
  const [first] = childrenOf(server.id);
  process.kill(first!, 'SIGKILL');
  // A process whose parent ends becomes a child of process 1.
  const orphan = spawnSync('nsenter', ['--target', String(server.id), '--pid', 'sh', '-c', '(sleep 0.1 &)']);
  expect(orphan.status, String(orphan.stderr)).toBe(0);
  const workers = () => childrenOf(server.id).map((id) => ({ id, isWorker: commandOf(id).includes('worker-main') }));
  await expect.poll(() => workers().filter(({ id, isWorker }) => isWorker && id !== first).length, patience).toBe(2);
  await expect.poll(() => workers().filter(({ isWorker }) => !isWorker), patience).toEqual([]);
  process.kill(server.id, 'SIGTERM');
  expect(await server.exited).toEqual([0, null]);
});
