/**
 * A server that has no free file descriptor for a while: it goes on with what needs none, says what does not work, and works as before
 * when descriptors are free again.
 */
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { Agent, request as httpRequest } from 'node:http';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text as readText } from 'node:stream/consumers';
import { afterAll, afterEach, beforeAll, expect, it, vi } from 'vitest';
import { buildCommand, killCommands, serve } from '../support/cli-process.ts';
import { isLongForm } from '../support/long-form.ts';
import { needs } from '../support/needs.ts';
import { childrenOf } from '../support/processes.ts';
import { until } from '../support/until.ts';

const folder = mkdtempSync(join(tmpdir(), 'kvasir-descriptors-'));
const sockets: Socket[] = [];
const agents: Agent[] = [];
const canLimit = process.platform === 'linux' && spawnSync('prlimit', ['--version']).status === 0;

beforeAll(buildCommand, 60_000);
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy();
  for (const agent of agents.splice(0)) agent.destroy();
  killCommands();
});
afterAll(() => rmSync(folder, { recursive: true }));

const patience = { timeout: 60_000 };

type Served = Awaited<ReturnType<typeof serve>>;
type Send = (path: string, body?: object) => Promise<{ readonly status: number; readonly text: string }>;

const filesOf = ({ child }: Served): number[] => readdirSync(`/proc/${child.pid}/fd`).map(Number);

/** More than the start of a thread or of a worker process waits for. */
const neededLater = 40;

/** The server gets no new descriptor until `giveBack`: its limit is lowered, and connections use what is left. */
async function takeDescriptors(server: Served): Promise<void> {
  const limit = Math.max(...filesOf(server)) + neededLater;
  expect(spawnSync('prlimit', [`--pid=${server.child.pid}`, `--nofile=${limit}:`]).status).toBe(0);
  await fill(server);
}

async function fill(server: Served): Promise<void> {
  const { hostname, port } = new URL(server.origin);
  let refused = 0;
  while (refused === 0) {
    const socket = connect(Number(port), hostname);
    // The server closes a connection for which it has no descriptor.
    socket.on('error', () => undefined).on('close', () => refused++);
    socket.resume();
    sockets.push(socket);
    await once(socket, 'connect');
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

async function giveBack(server: Served): Promise<void> {
  for (const socket of sockets.splice(0)) socket.destroy();
  const headers = { connection: 'close' };
  await vi.waitFor(async () => expect((await fetch(`${server.origin}/health`, { headers })).ok).toBe(true), patience);
}

/** Sends requests over one connection, which the server has already accepted. */
function sender({ origin }: Served): Send {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  agents.push(agent);
  return (path, body) =>
    new Promise((resolve, reject) => {
      const method = body === undefined ? 'GET' : 'POST';
      const headers = { 'content-type': 'application/json' };
      const sent = httpRequest(origin + path, { agent, method, headers }, (response) => {
        readText(response).then((text) => resolve({ status: response.statusCode!, text }), reject);
      });
      sent.on('error', reject).end(body === undefined ? undefined : JSON.stringify(body));
    });
}

const answer = { prompt: 'Once upon a time', temperature: 0, max_tokens: 8 };
const user = { role: 'user', content: 'hi' };
const kinds: readonly (readonly [string, object?])[] = [
  ['/health'],
  ['/'],
  ['/page/app.js'],
  ['/metrics'],
  ['/v1/models'],
  ['/v1/completions', answer],
  ['/v1/completions', { ...answer, stream: true }],
  [
    '/v1/completions',
    { ...answer, structured_outputs: { choice: Array.from({ length: 3000 }, (_, i) => `value ${i}`) } },
  ],
  ['/v1/chat/completions', { messages: [user], max_tokens: 2 }],
  ['/v1/responses', { input: 'hi', max_output_tokens: 2 }],
  ['/tokenize', { prompt: 'Once upon a time there was a fox. '.repeat(2000) }],
  ['/tokenize', { messages: new Array(400).fill(user) }],
];

const statuses = async (send: Send): Promise<[string, number][]> => {
  const found: [string, number][] = [];
  for (const [path, body] of kinds) found.push([path, (await send(path, body)).status]);
  return found;
};
const allOk = kinds.map(([path]) => [path, 200]);

it(
  'every kind of request is answered, also those that are the first of their kind',
  needs(canLimit, 'not Linux, or no prlimit'),
  async () => {
    const disk = [
      '--kv-tier',
      'host:1MiB',
      '--kv-tier',
      `disk:${join(folder, 'disk')}:64MiB`,
      '--kv-load-policy',
      'always',
    ];
    const server = await serve([...disk]);
    const send = sender(server);
    const textOf = async (): Promise<string> =>
      JSON.parse((await send('/v1/completions', answer)).text).choices[0].text;
    expect((await send('/health')).status).toBe(200);
    await takeDescriptors(server);
    expect(await statuses(send)).toEqual(allOk);
    const text = await textOf();
    await giveBack(server);
    expect(await statuses(sender(server))).toEqual(allOk);
    expect(await textOf()).toBe(text);
    server.child.kill('SIGTERM');
    expect(await server.exited).toEqual([0, null]);
  },
);

it(
  'a thread that ended meanwhile is started again, /health names what fails until then',
  needs(canLimit, 'not Linux, or no prlimit'),
  async () => {
    const template = join(folder, 'endless.jinja');
    const loops = '{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}';
    writeFileSync(template, `{% if messages|length == 3 %}${loops}{% endif %}text`);
    const server = await serve(['--chat-template', template]);
    const send = sender(server);
    const gone = sender(server);
    const [{ status }] = [await send('/health'), await gone('/health')];
    expect(status).toBe(200);
    const before = filesOf(server).length;
    await takeDescriptors(server);
    // A client leaves while the template loops, so the thread is replaced.
    const leaving = gone('/v1/chat/completions', { messages: [user, user, user] }).catch(() => undefined);
    await vi.waitFor(async () => expect(JSON.parse((await send('/load')).text).server_load).toBe(1), patience);
    agents[1]!.destroy();
    await leaving;
    await vi.waitFor(async () => expect(JSON.parse((await send('/health')).text).status).toBe('degraded'), patience);
    const health = await send('/health');
    expect(health.status).toBe(200);
    expect(JSON.parse(health.text).message).toMatch(
      /^Rendering chats is not possible now: .* cannot start \(EMFILE\)\.$/,
    );
    await fill(server);
    const full = filesOf(server).length;
    // Node itself loses each of these descriptors in a start that fails.
    for (let free = 1; free <= 3; free++) {
      sockets.shift()!.destroy();
      await until(() => filesOf(server).length <= full - free);
      const chat = await send('/v1/chat/completions', { messages: [user] });
      expect([chat.status, JSON.parse(chat.text).error.code]).toEqual([503, 'KVASIR_THREAD_UNAVAILABLE']);
    }
    expect((await send('/v1/completions', answer)).status).toBe(200);

    await giveBack(server);
    await vi.waitFor(async () => expect(JSON.parse((await send('/health')).text)).toEqual({ status: 'ok' }), patience);
    expect(await statuses(send)).toEqual(allOk);
    // Starts that fail must not lose descriptors.
    // The client that left had one.
    await until(() => filesOf(server).length < before);
    server.child.kill('SIGTERM');
    expect(await server.exited).toEqual([0, null]);
  },
);

if (isLongForm)
  it(
    'a worker process that dies meanwhile is replaced later',
    needs(canLimit, 'not Linux, or no prlimit'),
    async () => {
      const server = await serve(['--pipeline-parallel-size', '2']);
      const send = sender(server);
      const textOf = async (): Promise<string> =>
        JSON.parse((await send('/v1/completions', answer)).text).choices[0].text;
      const text = await textOf();
      await takeDescriptors(server);
      const state = async (): Promise<{ status: string; message?: string }> => JSON.parse((await send('/health')).text);
      process.kill(childrenOf(server.child.pid!)[1]!, 'SIGKILL');
      await vi.waitFor(
        async () => expect((await state()).message).toContain('no free file descriptor (EMFILE)'),
        patience,
      );
      expect((await state()).status).toBe('recovering');
      for (const socket of sockets.splice(0)) socket.destroy();
      await vi.waitFor(async () => expect(await state()).toEqual({ status: 'ok' }), patience);
      expect(await textOf()).toBe(text);
      server.child.kill('SIGTERM');
      expect(await server.exited).toEqual([0, null]);
    },
  );
