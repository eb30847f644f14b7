import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type { JsonObject } from '../../src/base/json.ts';
import type { Prng } from '../../src/base/prng.ts';

/**
 * Requests besides the compared ones. Each has names and texts that no other has, so that a table by model, path, id, text or schema grows if
 * nothing bounds it. Only their status is checked.
 */
const kinds: readonly ((client: OtherClient, name: string) => Promise<void>)[] = [
  async (client, name) => {
    const body = { prompt: `${name} `, max_tokens: 3, n: 2, cache_salt: name, user: name, logprobs: 1, stop: [name] };
    await client.post('/v1/completions', body, 200);
  },
  async (client, name) => {
    await client.post('/v1/chat/completions', { messages: [{ role: 'user', content: name }], max_tokens: 3 }, 200);
  },
  async (client, name) => {
    const schema = { type: 'object', properties: { [name]: { enum: [name] } }, required: [name] };
    const format = { type: 'json_schema', json_schema: { name: 'answer', schema } };
    const messages = [{ role: 'user', content: 'Answer.' }];
    await client.post('/v1/chat/completions', { messages, max_tokens: 4, response_format: format }, 200);
  },
  async (client, name) => {
    const first = await client.post('/v1/responses', { input: name, max_output_tokens: 2 }, 200);
    const next = { input: name, max_output_tokens: 2, previous_response_id: first.id ?? null };
    const second = await client.post('/v1/responses', next, 200);
    await client.send('GET', `/v1/responses/${String(second.id)}`, undefined, 200);
    await client.send('DELETE', `/v1/responses/${String(first.id)}`, undefined, 200);
  },
  async (client, name) => {
    await client.post('/v1/completions', { model: name, prompt: 'a', max_tokens: 1 }, 404);
    await client.send('GET', `/v1/responses/resp_${name}`, undefined, 404);
    await client.send('GET', `/${name}`, undefined, 404);
    await client.post('/v1/completions', { prompt: 'a', [name]: 1, temperature: name }, 400);
    await client.post('/tokenize', { prompt: name }, 200);
  },
  (client, name) => client.leaveEarly(name),
];

export interface OtherOutcome {
  readonly kind: 'ended' | 'refused';
  readonly problem?: string;
}

/** Sends one of these requests. `index`: another one for each request of the soak. */
export async function sendOther(origin: string, prng: Prng, index: number): Promise<OtherOutcome> {
  const name = `name${index}x${prng.between(0, 1e9)}`;
  try {
    await prng.pick(kinds)(new OtherClient(origin, name), name);
    return { kind: 'ended' };
  } catch (error) {
    if (error instanceof Refused) return { kind: 'refused' };
    return { kind: 'ended', problem: (error as Error).message };
  }
}

class Refused extends Error {}

class OtherClient {
  readonly #origin: string;
  readonly #headers: Readonly<Record<string, string>>;

  constructor(origin: string, name: string) {
    this.#origin = origin;
    this.#headers = { 'x-request-id': name, 'user-agent': name };
  }

  post(path: string, body: JsonObject, status: number): Promise<JsonObject> {
    return this.send('POST', path, body, status);
  }

  async send(method: string, path: string, body: JsonObject | undefined, status: number): Promise<JsonObject> {
    const response = await fetch(`${this.#origin}${path}`, {
      method,
      headers: { ...this.#headers, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    if (response.status === 503 && response.headers.has('retry-after')) throw new Refused();
    if (response.status !== status)
      throw new Error(`${method} ${path} has status ${response.status}: ${text.slice(0, 300)}`);
    return JSON.parse(text) as JsonObject;
  }

  /** Sends a part of a request, or a whole one, and closes the connection without reading. */
  async leaveEarly(name: string): Promise<void> {
    const { hostname, port } = new URL(this.#origin);
    const socket = connect(Number(port), hostname);
    const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
    // The server may close it first.
    socket.on('error', () => undefined);
    const body = JSON.stringify({ prompt: name, max_tokens: 30, stream: name.endsWith('1') });
    const head = `POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n`;
    const isWhole = /[02468]$/.test(name);
    socket.write(head + body.slice(0, isWhole ? body.length : 5));
    await sleep(20);
    socket.destroy();
    await closed;
  }
}
