/**
 * The answers of all APIs, and what the engine was asked for, as they are recorded in `test/data/server-answers`. `npx vitest run -u` records
 * them again. With KVASIR_ANSWERS, the answers to some 15,000 wrong requests are written to this file too, for a comparison of two trees.
 */
import { createHash } from 'node:crypto';
import { appendFileSync, rmSync } from 'node:fs';
import { afterAll, describe, expect, it } from 'vitest';
import { LetterEngine } from '../../test/support/letter-engine.ts';
import { engines, goodRequests, oddRequests, type ServerRequest } from '../../test/support/server-requests.ts';
import { Server } from './server.ts';

interface Served {
  readonly origin: string;
  readonly server: Server;
  /** What the engine was asked for since the last call, as text. */
  asked(): string;
}

const served = new Map<string, Promise<Served>>();
afterAll(async () => {
  for (const each of served.values()) await (await each).server.app.close();
});

async function serve(name: string, strictFields: boolean): Promise<Served> {
  const engine = new LetterEngine(engines[name]);
  const rendered: unknown[] = [];
  const { renderChat } = engine;
  engine.renderChat = (messages, given) => {
    rendered.push({ messages, variables: given?.variables, adds: given?.addGenerationPrompt });
    return renderChat.call(engine, messages, given);
  };
  const server = new Server(engine, { version: '1.2.3', logLevel: 'silent', strictFields, enableFaultInjection: true });
  const origin = `http://127.0.0.1:${await server.listen(0, '127.0.0.1')}`;
  const asked = () => textOf([...rendered.splice(0), ...engine.requests.splice(0)]);
  return { origin, server, asked };
}

function textOf(values: readonly unknown[]): string {
  const plain = (_: string, value: unknown): unknown => {
    if (typeof value === 'bigint') return `${value}n`;
    if (value instanceof Map) return [...value];
    return ArrayBuffer.isView(value) ? Buffer.from(Int32Array.from(value as Int32Array)).toString('latin1') : value;
  };
  return values.map((value) => normal(JSON.stringify(value, plain))).join('\n');
}

/** Without ids, times and measured speeds. */
const normal = (text: string): string =>
  text
    .replace(/[0-9a-f]{24,32}/g, 'ID')
    .replace(/req-[0-9a-f-]{36}/g, 'req-ID')
    .replace(/"(created|created_at|completed_at|modified_at|expires_at)":("[^"]*"|\d+)/g, '"$1":0')
    .replace(/"(\w+_(?:duration|ms|per_second|per_token_ms))":[\d.e+-]+/g, '"$1":0');

/** The order of routes and of fields has no meaning. */
function sorted(json: string): string {
  const inOrder = (_: string, value: unknown): unknown =>
    typeof value !== 'object' || value === null || Array.isArray(value)
      ? value
      : Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
  return JSON.stringify(JSON.parse(json), inOrder, 1);
}

const unsteady = new Set(['date', 'content-length', 'connection', 'keep-alive', 'transfer-encoding', 'x-request-id']);

async function answerTo({ path, body, engine = 'letters', isStrict = false }: ServerRequest): Promise<string> {
  const key = `${engine} ${isStrict}`;
  const running = served.get(key) ?? serve(engine, isStrict);
  served.set(key, running);
  const { origin, asked } = await running;
  const init = { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) };
  const response = await fetch(origin + path, body === undefined ? {} : init);
  const text = await response.text();
  const headers = [...response.headers]
    .filter(([name]) => !unsteady.has(name))
    .map(([name, value]) => `${name}: ${value}`);
  const shown = path === '/' ? 'the page' : path === '/openapi.json' ? sorted(text) : normal(text.trimEnd());
  const whole = body === undefined ? '' : JSON.stringify(body);
  const sent = whole.length > 400 ? `${whole.slice(0, 400)}... ${whole.length}` : whole;
  const lines = [
    `${body === undefined ? 'GET' : 'POST'} ${path} ${sent} of ${engine}${isStrict ? ', strict' : ''}`,
    `${response.status} ${normal(headers.join('; '))}`,
    shown,
    asked(),
  ];
  return `${lines.filter((line) => line !== '').join('\n')}\n`;
}

const isLong = (text: string): boolean => text.length > 1500;
const shortened = (text: string): string =>
  isLong(text) ? `${text.slice(0, 500)}... ${createHash('sha256').update(text).digest('hex').slice(0, 16)}\n` : text;

const file = process.env.KVASIR_ANSWERS;
if (file !== undefined) rmSync(file, { force: true });

/** By the first parts of their paths. */
const groups = new Map<string, ServerRequest[]>();
for (const request of goodRequests()) {
  const name = request.body === undefined ? 'get' : request.path.split('/').slice(1).join('-');
  groups.set(name, [...(groups.get(name) ?? []), request]);
}

describe('recorded answers', () => {
  it.each([...groups])('of %s', async (name, requests) => {
    let all = '';
    for (const request of requests) {
      const answer = await answerTo(request);
      if (file !== undefined) appendFileSync(file, `${answer}\n`);
      all += `${shortened(answer)}\n`;
    }
    await expect(all).toMatchFileSnapshot(`../../test/data/server-answers/${name}.txt`);
  });

  it('of wrong requests, which are written to a file if it is named', async () => {
    for (const request of file === undefined ? [] : oddRequests())
      appendFileSync(file!, `${await answerTo(request)}\n`);
  });
});
