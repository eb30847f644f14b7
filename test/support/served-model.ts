import OpenAI from 'openai';
import type { AsyncEngine } from '../../src/engine/contract.ts';
import { Server } from '../../src/server/server.ts';

/** A server for an engine on a free port, and OpenAI's client for it. The engine stays open when the server is closed. */
export async function serveEngine(
  engine: AsyncEngine,
  options: Partial<ConstructorParameters<typeof Server>[1]> = {},
): Promise<{ readonly client: OpenAI; close(): Promise<void> }> {
  const server = new Server(engine, { version: '0.0.0', logLevel: 'error', ...options });
  const port = await server.listen(0, '127.0.0.1');
  return {
    client: new OpenAI({ baseURL: `http://127.0.0.1:${port}/v1`, apiKey: 'none', maxRetries: 0 }),
    close: () => server.app.close(),
  };
}
