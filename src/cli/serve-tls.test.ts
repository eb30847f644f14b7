import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:https';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { type ConnectionOptions, connect as connectTls, type TLSSocket } from 'node:tls';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { type CertificateFiles, hasOpenssl, makeCertificate } from '../../test/support/certificates.ts';
import { needs } from '../../test/support/needs.ts';
import { runHere } from '../../test/support/run-here.ts';
import { serveHere } from '../../test/support/serve-here.ts';

const patience = { timeout: 120_000, interval: 5 };
const folder = mkdtempSync(join(tmpdir(), 'kvasir-tls-'));
const cleanups: (() => unknown)[] = [];
let first: CertificateFiles;
let second: CertificateFiles;
let client: CertificateFiles;

beforeAll(() => {
  if (!hasOpenssl) return;
  first = makeCertificate(folder, 'first');
  second = makeCertificate(folder, 'second');
  client = makeCertificate(folder, 'client', second);
});
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});
afterAll(() => rmSync(folder, { recursive: true }));

/** A loaded server with copies of the files, which the test can replace. */
async function start(...flags: string[]) {
  const files = { certificate: join(folder, 'server.pem'), key: join(folder, 'server.key') };
  put(first);
  const server = await serveHere(['--ssl-certfile', files.certificate, '--ssl-keyfile', files.key, ...flags]);
  cleanups.push(server.close);
  server.loaded.resolve(server.engine);
  await vi.waitFor(() => expect(server.stderr()).toContain(' serving '), patience);
  const port = Number(new URL(server.origin).port);
  return { ...server, files, port, put };

  function put({ certificate, key }: CertificateFiles): void {
    copyFileSync(certificate, files.certificate);
    copyFileSync(key, files.key);
  }
}

const trusted = () => ({ ca: [first, second].map(({ certificate }) => readFileSync(certificate)) });

async function handshake(port: number, options: ConnectionOptions = {}): Promise<TLSSocket> {
  const socket = connectTls({ port, host: '127.0.0.1', ...trusted(), ...options });
  cleanups.push(() => socket.destroy());
  await once(socket, 'secureConnect');
  return socket;
}

const nameOf = async (port: number): Promise<string | undefined> => {
  const socket = await handshake(port);
  const { CN } = socket.getPeerCertificate().subject;
  socket.destroy();
  return [CN].flat()[0];
};

/** The status of /health on this connection. */
async function healthOn(socket: TLSSocket): Promise<string> {
  socket.write('GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n');
  return String((await once(socket, 'data'))[0]).split(' ', 2)[1]!;
}

describe('TLS', needs(hasOpenssl, 'no openssl'), () => {
  it('serves over HTTPS, and says so; connections without TLS get nothing', async () => {
    const { origin, port, stderr } = await start();
    expect(origin).toMatch(/^https:/);
    expect(stderr()).toMatch(/address=https:/);
    const asked = request(`${origin}/v1/completions`, {
      ...trusted(),
      method: 'POST',
      headers: { 'content-type': 'application/json' },
    });
    asked.end('{"prompt":"abc","max_tokens":2}');
    const [response] = await once(asked, 'response');
    expect(JSON.parse(await text(response)).choices).toHaveLength(1);
    const plain = connect(port, '127.0.0.1');
    cleanups.push(() => plain.destroy());
    plain.write('GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n');
    let got = '';
    plain.on('data', (piece) => (got += piece));
    await once(plain, 'close');
    expect(got).not.toContain('HTTP');
  });

  it('reads the certificate again at SIGHUP; open connections continue', async () => {
    const { port, put, signals, stderr } = await start();
    const open = await handshake(port);
    expect(await healthOn(open)).toBe('200');
    put(second);
    signals.emit('SIGHUP');
    await vi.waitFor(() => expect(stderr()).toMatch(/certificate read again: CN=second, valid until 20/), patience);
    expect(await nameOf(port)).toBe('second');
    expect(await healthOn(open)).toBe('200');
    expect([open.getPeerCertificate().subject.CN].flat()).toEqual(['first']);
  });

  it('keeps its certificate if the new files cannot be used', async () => {
    const { port, files, put, signals, stderr } = await start();
    const kept = async (change: () => void, warning: RegExp): Promise<void> => {
      change();
      signals.emit('SIGHUP');
      await vi.waitFor(() => expect(stderr()).toMatch(warning), patience);
      expect(await nameOf(port)).toBe('first');
    };
    await kept(
      () => copyFileSync(second.key, files.key),
      /warn +The server keeps its certificate\. TLS cannot use .*: the key is not that of the certificate/,
    );
    await kept(() => writeFileSync(files.certificate, ''), /--ssl-certfile names a file in PEM format/);
    await kept(() => rmSync(files.key), /server\.key: it cannot be read \(ENOENT\)/);
    // A pipe has no writer, so reading it would not end, and later signals would have no effect.
    if (process.platform !== 'win32')
      await kept(
        () => execFileSync('mkfifo', [files.key]),
        /server\.key: it cannot be read \(it is not a regular file\)/,
      );
    rmSync(files.key, { force: true });
    put(second);
    signals.emit('SIGHUP');
    await vi.waitFor(async () => expect(await nameOf(port)).toBe('second'), patience);
  });

  it('ends although clients keep idle connections and began handshakes', async () => {
    const { port, code, signals } = await start();
    const idle = await handshake(port);
    expect(await healthOn(idle)).toBe('200');
    const begun = connect(port, '127.0.0.1');
    cleanups.push(() => begun.destroy());
    begun.on('error', () => undefined);
    await once(begun, 'connect');
    const closed = Promise.all([once(idle.resume(), 'close'), once(begun.resume(), 'close')]);
    signals.emit('SIGTERM');
    expect(await code).toBe(0);
    await closed;
  });

  it.each([
    ['2', 'no certificate', 'refused'],
    ['1', 'no certificate', 'served'],
    ['1', 'a wrong certificate', 'refused'],
    ['2', 'a certificate', 'served'],
  ])('--ssl-cert-reqs %s: a client with %s is %s', async (when, what, outcome) => {
    const { port } = await start('--ssl-cert-reqs', when, '--ssl-ca-certs', second.certificate);
    const shown = what === 'a certificate' ? client : what === 'no certificate' ? undefined : first;
    const own = shown && { cert: readFileSync(shown.certificate), key: readFileSync(shown.key) };
    const answer = await handshake(port, own)
      .then((socket) => Promise.race([healthOn(socket), once(socket, 'close').then(() => 'closed')]))
      .catch(() => 'closed');
    expect(answer).toBe(outcome === 'served' ? '200' : 'closed');
  });

  it('refuses files and flags that do not fit together, with code 2', async () => {
    const failed = async (...flags: string[]) => {
      const { code, stderr } = await runHere(['serve', '--port', '0', ...flags]);
      expect(code).toBe(2);
      return stderr;
    };
    const certfile = ['--ssl-certfile', first.certificate];
    expect(await failed(...certfile, '--ssl-keyfile', second.key)).toContain('the key is not that of the certificate');
    expect(await failed(...certfile)).toContain('there is no key');
    expect(await failed('--ssl-certfile', join(folder, 'none'))).toContain('cannot be read (ENOENT)');
    expect(await failed('--ssl-certfile', folder)).toContain('cannot be read (it is not a regular file)');
    expect(await failed('--ssl-certfile', 'package.json')).toContain('names a file in PEM format');
    expect(await failed('--ssl-keyfile', first.key)).toContain('--ssl-certfile is missing');
    expect(await failed(...certfile, '--ssl-keyfile', first.key, '--ssl-cert-reqs', '2')).toContain(
      '--ssl-ca-certs is missing',
    );
  });

  it('finds the key in the file of the certificate', async () => {
    const both = join(folder, 'both.pem');
    writeFileSync(both, [first.key, first.certificate].map((path) => readFileSync(path, 'utf8')).join(''));
    const server = await serveHere(['--ssl-certfile', both]);
    cleanups.push(server.close);
    expect(await nameOf(Number(new URL(server.origin).port))).toBe('first');
  });
});
