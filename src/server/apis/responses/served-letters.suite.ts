import OpenAI from 'openai';
import { afterEach } from 'vitest';
import { LetterEngine, type LetterEngineOptions } from '../../../../test/support/letter-engine.ts';
import type { ChatMessage } from '../../../engine/contract.ts';
import { Server, type ServerOptions } from '../../server.ts';

export const templates = {
  hermes: '{% if tools %}<tool_call>{% endif %}{{ tool_calls }}',
  qwen3: '{% if tools %}<tool_call>{% endif %}{{ tool_calls }}{{ content.split("</think>") }}',
  plain: '{{ messages }}',
};

export interface ServedLetters {
  readonly engine: LetterEngine;
  readonly server: Server;
  readonly origin: string;
  readonly client: OpenAI;
  /** What each request gave to the chat template. */
  readonly rendered: { messages: readonly ChatMessage[]; variables: unknown }[];
  post(body: unknown, path?: string): Promise<{ status: number; headers: Headers; body: Json }>;
}

/** Any JSON: tests look at single fields. */
export interface Json {
  readonly [field: string]: Json;
}

const cleanups: (() => Promise<unknown>)[] = [];

/** Serves a model that needs no file, and OpenAI's client for it. Everything is closed after the test. */
export async function serveLetters(
  engineOptions: LetterEngineOptions & { readonly template?: keyof typeof templates } = {},
  options: Partial<ServerOptions> = {},
): Promise<ServedLetters> {
  const { template = 'hermes', ...rest } = engineOptions;
  const engine = new LetterEngine({ maxModelLen: 5000, chatTemplate: templates[template], ...rest });
  const rendered: ServedLetters['rendered'] = [];
  const { renderChat } = engine;
  engine.renderChat = (messages, given) => {
    rendered.push({ messages, variables: given?.variables });
    return renderChat.call(engine, messages, given);
  };
  const server = new Server(engine, { version: '1', logLevel: 'silent', ...options });
  cleanups.push(() => server.app.close());
  const origin = `http://127.0.0.1:${await server.listen(0, '127.0.0.1')}`;
  const client = new OpenAI({ baseURL: `${origin}/v1`, apiKey: 'none', maxRetries: 0 });
  const post = async (body: unknown, path = '/v1/responses') => {
    const headers = { 'content-type': 'application/json' };
    const response = await fetch(origin + path, { method: 'POST', headers, body: JSON.stringify(body) });
    return { status: response.status, headers: response.headers, body: JSON.parse(await response.text()) };
  };
  return { engine, server, origin, client, rendered, post };
}

export const closeServers = (): void => {
  afterEach(async () => {
    for (const cleanup of cleanups.splice(0)) await cleanup();
  });
};
