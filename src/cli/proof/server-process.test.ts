import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { ServerProcess, withServer } from './server-process.ts';

const folder = mkdtempSync(join(tmpdir(), 'kvasir-server-process-'));
afterAll(() => rmSync(folder, { recursive: true }));
const { signal } = new AbortController();
let serial = 0;

/** Starts a program that takes the place of the server. */
function start(program: string): Promise<ServerProcess> {
  const path = join(folder, `server-${serial++}.mjs`);
  writeFileSync(path, `const log = (line) => console.error(JSON.stringify(line));\n${program}`);
  return ServerProcess.start([], signal, { path });
}

const serve = "log({ level: 30, msg: 'serving', address: 'http://127.0.0.1:1' }); setInterval(() => {}, 1000);\n";
const endsWhenTold = "process.on('message', (message) => message === 'shutdown' && process.exit(0));\n";

it('a server that ends before it serves is an error with its message', async () => {
  const ended = start("log({ level: 30, msg: 'listening' }); console.error('error: no such model'); process.exit(1);");
  await expect(ended).rejects.toMatchObject({
    code: 'KVASIR_CHILD_SERVER_ENDED',
    message: expect.stringMatching(/has ended: no such model$/) as string,
  });
});

it('work that fails because its server was killed is an error that says so', async () => {
  const work = withServer(start(`log({ level: 40, msg: 'a tier fails' });\n${serve}`), async (server) => {
    process.kill(server.processId, 'SIGKILL');
    await fetch(server.origin);
  });
  await expect(work).rejects.toMatchObject({
    code: 'KVASIR_CHILD_SERVER_ENDED',
    message: expect.stringContaining('a tier fails') as string,
  });
  const silent = withServer(start(serve), async (server) => {
    process.kill(server.processId, 'SIGKILL');
    await fetch(server.origin);
  });
  await expect(silent).rejects.toThrow('it ended with SIGKILL');
});

it('other errors of the work stay, and the server is stopped', async () => {
  let stopped: ServerProcess | undefined;
  const work = withServer(start(`${endsWhenTold}log({ level: 40, msg: 'slow' });\n${serve}`), async (server) => {
    stopped = server;
    expect(server.warnings).toEqual(['slow']);
    throw new RangeError('of the work');
  });
  await expect(work).rejects.toThrow(RangeError);
  expect(() => process.kill(stopped!.processId, 0)).toThrow('ESRCH');
});
