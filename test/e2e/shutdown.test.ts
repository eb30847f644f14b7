/**
 * How the built command ends after SIGTERM and SIGINT, with real processes and connections. In tests that show that the end does not
 * wait for something, the shutdown timeout is a day.
 */
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { Agent, request as httpRequest, type IncomingMessage } from 'node:http';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { buildCommand, killCommands, serve, smallPool, start } from '../support/cli-process.ts';
import { hasCompiler } from '../support/has-compiler.ts';
import { describeInLongForm, inLongForm, isLongForm, itInLongForm } from '../support/long-form.ts';
import { needs } from '../support/needs.ts';
import { allGone, childrenOf, isRunning, isStopped } from '../support/processes.ts';
import { quickCompiler } from '../support/quick-compiler.ts';

const folder = mkdtempSync(join(tmpdir(), 'kvasir-shutdown-'));
const sockets: Socket[] = [];
const writers: FileHandle[] = [];

beforeAll(buildCommand, 60_000);
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  killCommands();
  for (const writer of writers.splice(0)) await writer.close();
});
afterAll(() => rmSync(folder, { recursive: true }));

const aDay = ['--shutdown-timeout', '86400'];
const long = { max_tokens: 600, ignore_eos: true, stream: true, temperature: 0 };
const endless = { max_tokens: 8000, ignore_eos: true, stream: true };

type Served = Awaited<ReturnType<typeof serve>>;

/** A connection that has sent only `text`. */
async function connection({ origin }: Served, text = ''): Promise<Socket> {
  const { hostname, port } = new URL(origin);
  const socket = connect(Number(port), hostname);
  sockets.push(socket);
  // If the server closes while bytes are in flight, it resets the connection.
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  if (text !== '') await new Promise<void>((resolve) => socket.write(text, () => resolve()));
  return socket;
}

const closeOf = (socket: Socket): Promise<unknown> => {
  socket.resume();
  return socket.closed ? Promise.resolve() : new Promise((resolve) => socket.once('close', resolve));
};

/** After this answer, the server has accepted all earlier connections. */
const hasAccepted = async ({ origin }: Served): Promise<void> => {
  await (await fetch(`${origin}/health`, { headers: { connection: 'close' } })).text();
};

describe('connections without a complete request', () => {
  const head = 'POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n';

  // The default form has such connections in the last test of this group.
  const connections: [string, string][] = [
    ['has sent nothing', ''],
    ['has sent half of its body', `${head}content-length: 1000\r\n\r\n{"prompt"`],
    ['has sent half of its headers', head],
  ];
  it.each(inLongForm(connections, []))('do not delay the shutdown: a connection that %s', async (_, text) => {
    const server = await serve(aDay);
    const socket = await connection(server, text);
    await hasAccepted(server);
    const closed = closeOf(socket);
    server.child.kill('SIGTERM');
    expect(await server.exited).toEqual([0, null]);
    await closed;
    await server.logged(/shutting down: no request is running\n/);
    expect(server.log()).not.toMatch(/aborted|requests? ended/);
  });

  itInLongForm('do not delay the shutdown: clients that keep their connections open after a load test', async () => {
    const server = await serve(aDay);
    const agent = new Agent({ keepAlive: true, maxSockets: 20 });
    const answer = (): Promise<number | undefined> =>
      new Promise((resolve, reject) => {
        const request = httpRequest(`${server.origin}/health`, { agent }, (response: IncomingMessage) => {
          response.resume().once('end', () => resolve(response.statusCode));
        });
        request.on('error', reject);
        request.end();
      });
    expect(await Promise.all(Array.from({ length: 40 }, answer))).toEqual(new Array(40).fill(200));
    server.child.kill('SIGTERM');
    expect(await server.exited).toEqual([0, null]);
    agent.destroy();
  });

  it('are closed at once while a running request completes; probes get an answer, and new requests an error', async () => {
    const server = await serve(aDay);
    const [silent, kept] = [
      await connection(server),
      await connection(server, 'GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n'),
    ];
    await once(kept, 'data');
    const reader = (await server.complete(long)).body!.getReader();
    await reader.read();
    const closed = Promise.all([closeOf(silent), closeOf(kept)]);
    server.child.kill('SIGTERM');
    await server.logged(/shutting down: 1 request is running, for 86400 s at most\n/);
    await closed;
    const probe = await fetch(`${server.origin}/health`);
    expect(probe.status).toBe(503);
    expect(probe.headers.get('connection')).toBe('close');
    expect((await server.complete({})).status).toBe(503);
    let text = '';
    for (let next = await reader.read(); !next.done; next = await reader.read()) text += Buffer.from(next.value);
    expect(text.endsWith('data: [DONE]\n\n')).toBe(true);
    expect(await server.exited).toEqual([0, null]);
    expect(server.log()).toContain('the running request ended\n');
  });
});

// The default form has the connection in `src/server/http/pipelining.test.ts`.
itInLongForm('several requests of a connection that is destroyed do not delay the shutdown', async () => {
  const server = await serve([...aDay, '--api-key-limits', '{"team":{"key":"k","max_running":2,"max_waiting":2}}']);
  const body = JSON.stringify({ prompt: 'Once upon a time', ...endless });
  const head = 'POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json';
  const request = `${head}\r\nauthorization: Bearer k\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
  const socket = await connection(server, request.repeat(4));
  const waiting = async () =>
    (await (await fetch(`${server.origin}/metrics`)).text()).includes('waiting{key="team"} 2');
  while (!(await waiting())) await new Promise((resolve) => setTimeout(resolve, 10));
  socket.resetAndDestroy();
  server.child.kill('SIGTERM');
  expect(await server.exited).toEqual([0, null]);
});

describe('a request that does not end', () => {
  // The default form has this end in the next test, with the other signal.
  itInLongForm('is aborted at the end of the shutdown timeout, and the exit code is that of the signal', async () => {
    const server = await serve(['--shutdown-timeout', '0']);
    await (await server.complete(endless)).body!.getReader().read();
    server.child.kill('SIGTERM');
    expect(await server.exited).toEqual([143, null]);
    expect(server.log()).toContain('the shutdown timeout of 0 s is over: 1 request was aborted\n');
  });

  // The default form has such clients in `src/server/http/connections.test.ts`.
  itInLongForm('is aborted even if its client reads nothing', async () => {
    const server = await serve(['--shutdown-timeout', '1']);
    const body = JSON.stringify({ prompt: 'Once upon a time', ...endless, n: 4 });
    const head = `POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: ${body.length}`;
    const socket = await connection(server, `${head}\r\n\r\n${body}`);
    await once(socket, 'data');
    socket.pause();
    server.child.kill('SIGINT');
    expect(await server.exited).toEqual([130, null]);
    expect(server.log()).toContain('the shutdown timeout of 1 s is over: 1 request was aborted\n');
  });

  const signals: ['SIGTERM' | 'SIGINT', 'SIGTERM' | 'SIGINT', number][] = [
    ['SIGTERM', 'SIGINT', 130],
    ['SIGTERM', 'SIGTERM', 143],
    ['SIGINT', 'SIGINT', 130],
  ];
  it.each(inLongForm(signals, signals.slice(0, 1)))(
    'is aborted at once by a second signal: %s, then %s',
    async (first, second, code) => {
      const server = await serve(aDay);
      await (await server.complete(endless)).body!.getReader().read();
      server.child.kill(first);
      await server.logged(/shutting down/);
      server.child.kill(second);
      expect(await server.exited).toEqual([code, null]);
      expect(server.log()).toContain('stopped by a second signal: 1 request was aborted\n');
    },
  );

  itInLongForm('is aborted by two signals that arrive together', async () => {
    const server = await serve(aDay);
    await (await server.complete(endless)).body!.getReader().read();
    server.child.kill('SIGTERM');
    server.child.kill('SIGINT');
    const [code] = await server.exited;
    expect([130, 143]).toContain(code);
  });
});

describe('a system call that does not return', () => {
  /**
   * After `opensBefore` successful calls, one `open` of `path` hangs, as on a dead mount. A FIFO is not enough: a model that is not a
   * regular file is rejected at once.
   */
  function hangingOpen(name: string, path: string, opensBefore: number) {
    const [source, library, hangs] = ['c', 'so', 'hangs'].map((end) => join(folder, `${name}.${end}`));
    writeFileSync(
      source!,
      `#define _GNU_SOURCE
      #include <fcntl.h>
      #include <stdarg.h>
      #include <stdatomic.h>
      #include <string.h>
      #include <sys/syscall.h>
      #include <unistd.h>
      static atomic_int opens;
      static int open_or_hang(const char *path, int flags, va_list more) {
        if (strcmp(path, "${path}") == 0 && atomic_fetch_add(&opens, 1) == ${opensBefore}) {
          syscall(SYS_openat, AT_FDCWD, "${hangs}", O_CREAT | O_WRONLY, 0600);
          for (;;) pause();
        }
        return syscall(SYS_openat, AT_FDCWD, path, flags, flags & O_CREAT ? va_arg(more, int) : 0);
      }
      #define REPLACED(name) int name(const char *path, int flags, ...) { \\
        va_list more; va_start(more, flags); int file = open_or_hang(path, flags, more); va_end(more); return file; }
      REPLACED(open)
      REPLACED(open64)`,
    );
    const { status, stderr } = spawnSync('cc', ['-shared', '-fPIC', '-o', library!, source!], { encoding: 'utf8' });
    expect(status, stderr).toBe(0);
    return { environment: { LD_PRELOAD: library! }, isHanging: () => existsSync(hangs!) };
  }

  // The default form has a prompt that is never written, below.
  const canPreload = hasCompiler && process.platform === 'linux';
  const model = resolve('models/kvasir-demo.gguf');
  const header = ['SIGTERM', 143, 'header', 0] as const;
  const weights = ['SIGINT', 130, 'weights', 3] as const;
  for (const [signal, code, what, opensBefore] of inLongForm([header, weights], [])) {
    const title = `does not stop ${signal} from ending a server that loads its model (${what})`;
    it(title, needs(canPreload, 'no Linux or no C compiler'), async () => {
      const { environment, isHanging } = hangingOpen(what, model, opensBefore);
      const child = start(['serve', '--port', '0', ...smallPool, model], environment);
      const exited = once(child, 'exit');
      await expect.poll(isHanging, { interval: 2 }).toBe(true);
      child.kill(signal);
      expect(await exited).toEqual([code, null]);
    });
  }

  it('does not stop SIGINT from ending `kvasir generate` that reads its prompt', async () => {
    const path = join(folder, 'prompt');
    expect(spawnSync('mkfifo', [path]).status).toBe(0);
    const child = start(['generate', ...smallPool, '--prompt', `@${path}`]);
    const exited = once(child, 'exit');
    // Resolves when the child has opened the FIFO. Nothing is ever written.
    writers.push(await open(path, 'w'));
    child.kill('SIGINT');
    expect(await exited).toEqual([130, null]);
  });
});

describe('a thread that computes without end does not stop the server from ending', () => {
  /** A server whose compute thread is in a kernel that does not return. The file `hang` makes it loop; the file `hangs` reports it. */
  async function hangingKernel(...args: string[]): Promise<Served> {
    const [header, hang, hangs] = ['h', 'hang', 'hangs'].map((end) => join(folder, `kernel.${end}`));
    for (const path of [hang, hangs]) rmSync(path!, { force: true });
    const source = `
      #include <fcntl.h>
      #include <stdlib.h>
      #include <unistd.h>
      static int hang_if_told(void) {
        if (access(getenv("KVASIR_TEST_HANG"), F_OK) != 0) return 0;
        close(open(getenv("KVASIR_TEST_HANGS"), O_CREAT | O_WRONLY, 0600));
        for (;;) usleep(1000);
      }
      #define __atomic_fetch_add(...) (hang_if_told(), __atomic_fetch_add(__VA_ARGS__))`;
    // The paths are no part of the source, so that the compiler can copy kernels that it has compiled before.
    writeFileSync(header!, source);
    const compiler = quickCompiler(join(folder, 'quick-cc'), `-include ${header}`);
    const cache = { CC: compiler, XDG_CACHE_HOME: join(folder, 'kernel-cache') };
    const environment = { ...cache, KVASIR_TEST_HANG: hang!, KVASIR_TEST_HANGS: hangs! };
    const server = await serve([...args, '--attention', 'native'], environment);
    await (await server.complete(endless)).body!.getReader().read();
    writeFileSync(hang!, '');
    await expect.poll(() => existsSync(hangs!), { timeout: 60_000, interval: 2 }).toBe(true);
    return server;
  }

  // Compiling the kernel costs more than the rest. The default form has a template that loops, below.
  if (isLongForm) {
    it('at the shutdown timeout, while a kernel hangs', needs(hasCompiler, 'no C compiler'), async () => {
      const server = await hangingKernel('--shutdown-timeout', '1');
      server.child.kill('SIGTERM');
      expect(await server.exited).toEqual([143, null]);
      expect(server.log()).toContain('the shutdown timeout of 1 s is over: 1 request was aborted\n');
    });

    it('at a second signal, while a kernel hangs', needs(hasCompiler, 'no C compiler'), async () => {
      const server = await hangingKernel(...aDay);
      server.child.kill('SIGTERM');
      await server.logged(/shutting down: 1 request is running/);
      server.child.kill('SIGTERM');
      expect(await server.exited).toEqual([143, null]);
    });
  }

  const loops = '{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}';

  it('at the shutdown timeout, while a chat template loops; other requests are answered meanwhile', async () => {
    const template = join(folder, 'endless.jinja');
    writeFileSync(template, loops);
    const server = await serve(['--shutdown-timeout', '0', '--chat-template', template]);
    const body = JSON.stringify({ messages: [{ role: 'user', content: 'a' }] });
    const head = `POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: ${body.length}`;
    await connection(server, `${head}\r\n\r\n${body}`);
    await hasAccepted(server);
    expect((await server.complete({ max_tokens: 1 })).status).toBe(200);
    server.child.kill('SIGTERM');
    expect(await server.exited).toEqual([143, null]);
    expect(server.log()).toContain('the shutdown timeout of 0 s is over: 1 request was aborted\n');
  });

  itInLongForm('at once, while it parses a chat template', async () => {
    const template = join(folder, 'spaces.jinja');
    writeFileSync(template, `${' '.repeat(900_000)}{{ messages }}`);
    const child = start(['serve', '--port', '0', ...smallPool, '--chat-template', template]);
    const exited = once(child, 'exit');
    await once(child.stderr, 'data');
    child.kill('SIGTERM');
    expect(await exited).toEqual([143, null]);
  });

  itInLongForm('at the shutdown timeout, while long texts are tokenized', async () => {
    const server = await serve(['--shutdown-timeout', '0', '--max-body-size', '16MiB']);
    const body = JSON.stringify({ prompt: 'a\u00e9 '.repeat(1 << 21) });
    const head = `POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}`;
    for (let i = 0; i < 4; i++) await connection(server, `${head}\r\n\r\n${body}`);
    await hasAccepted(server);
    server.child.kill('SIGTERM');
    // A fast machine may have rejected or answered all of them.
    expect([0, 143]).toContain((await server.exited)[0]);
  });
});

it('a server whose log has no reader any more goes on, and ends with code 0', async () => {
  const server = await serve();
  const closed = once(server.child.stderr, 'close');
  server.child.stderr.destroy();
  await closed;
  // Each request is a line of the log.
  for (let i = 0; i < 3; i++) expect((await server.complete({ max_tokens: 1 })).status).toBe(200);
  server.child.kill('SIGHUP');
  expect((await server.complete({ max_tokens: 1 })).status).toBe(200);
  server.child.kill('SIGTERM');
  expect(await server.exited).toEqual([0, null]);
});

// The default form has stopped workers in `stopped-workers.test.ts`: at the close of an engine, and its health.
describeInLongForm('stopped worker processes', () => {
  const ranks = ['--pipeline-parallel-size', '2'];

  /** A server whose ranks hang in the middle of a stream. */
  async function hung(...args: string[]) {
    const server = await serve([...ranks, ...args]);
    const workers = childrenOf(server.child.pid!);
    expect(workers).toHaveLength(2);
    await (await server.complete(endless)).body!.getReader().read();
    for (const id of workers) process.kill(id, 'SIGSTOP');
    return { server, workers };
  }

  it('do not stop SIGTERM from ending the server, and end with it', async () => {
    const { server, workers } = await hung('--worker-timeout', '0', '--shutdown-timeout', '1');
    server.child.kill('SIGTERM');
    expect(await server.exited).toEqual([143, null]);
    await allGone(workers);
  });

  it('do not stop a second signal from ending the server, and end with it', async () => {
    const { server, workers } = await hung('--worker-timeout', '0', ...aDay);
    server.child.kill('SIGTERM');
    await server.logged(/shutting down/);
    server.child.kill('SIGTERM');
    expect(await server.exited).toEqual([143, null]);
    await allGone(workers);
  });

  it('are named in the health until they are replaced, and the server stays live', async () => {
    const server = await serve([...ranks, '--worker-timeout', '1']);
    const health = async (path = '') => {
      const response = await fetch(`${server.origin}/health${path}`);
      return { status: response.status, body: JSON.parse(await response.text()) };
    };
    const [first] = childrenOf(server.child.pid!);
    process.kill(first!, 'SIGSTOP');
    const patience = { timeout: 60_000, interval: 20 };
    await expect
      .poll(() => health(), patience)
      .toMatchObject({
        status: 503,
        body: { status: 'recovering', ranks: [{ processId: first, state: 'silent' }] },
      });
    expect(await health('/live')).toEqual({ status: 200, body: { status: 'ok' } });
    await server.logged(/The worker process of rank 0 of 2 did not answer for 1 s and was killed\./);
    await expect.poll(() => health(), patience).toEqual({ status: 200, body: { status: 'ok' } });
    expect(isRunning(first!)).toBe(false);
  });

  it('end after SIGTERM while they load', async () => {
    // Each worker stops itself before it runs the worker's program.
    const stopping = join(folder, 'stopping.mjs');
    writeFileSync(stopping, `if (process.argv[1]?.includes('worker-main')) process.kill(process.pid, 'SIGSTOP');`);
    const child = start(['serve', '--port', '0', ...smallPool, ...ranks], { NODE_OPTIONS: `--import=${stopping}` });
    const exited = once(child, 'exit');
    const stopped = () => childrenOf(child.pid!).filter(isStopped);
    await expect.poll(() => stopped().length, { interval: 2 }).toBe(2);
    const workers = stopped();
    child.kill('SIGTERM');
    expect(await exited).toEqual([143, null]);
    await allGone(workers);
  });

  it('are not replaced when the server itself is stopped for longer than their timeout', async () => {
    // At the first signal, it reports that its watch of the workers, which pings each second, has run. At the second, its clock shows
    // an hour more.
    const later = join(folder, 'later.mjs');
    writeFileSync(
      later,
      `const now = performance.now.bind(performance);
      const report = (text) => setTimeout(() => process.stderr.write(text), 2_500);
      process.once('SIGUSR2', () => {
        report('pings are not answered\\n');
        process.on('SIGUSR2', () => {
          performance.now = () => now() + 3_600_000;
          report('an hour later\\n');
        });
      });`,
    );
    const server = await serve([...ranks, '--worker-timeout', '600'], { NODE_OPTIONS: `--import=${later}` });
    const workers = childrenOf(server.child.pid!);
    const request = { ...long, max_tokens: 300, stream: false };
    const response = await server.complete(request);
    const expected = JSON.parse(await response.text()).choices[0].text;
    const again = server.complete(request);
    for (const id of workers) process.kill(id, 'SIGSTOP');
    server.child.kill('SIGUSR2');
    await server.logged(/pings are not answered/);
    server.child.kill('SIGSTOP');
    await expect.poll(() => isStopped(server.child.pid!), { interval: 2 }).toBe(true);
    server.child.kill('SIGUSR2');
    server.child.kill('SIGCONT');
    await server.logged(/an hour later/);
    for (const id of workers) process.kill(id, 'SIGCONT');
    expect(JSON.parse(await (await again).text()).choices[0].text).toBe(expected);
    expect(childrenOf(server.child.pid!)).toEqual(workers);
    expect(server.log()).not.toContain('did not answer');
  });
});
