import { readFileSync } from 'node:fs';
import { createEngine } from '../../src/compose.ts';
import type { AsyncEngine } from '../../src/engine/contract.ts';
import { OutputStream } from '../../src/engine/output-stream.ts';
import { Server } from '../../src/server/server.ts';
import type { AgentRequest } from './agent-recordings.ts';
import { chatTemplateFile } from './chat-templates.ts';

export interface ServedTemplate extends AsyncDisposable {
  /** The text of the prompt that the model gets for a request. The model does not run. */
  promptOf(request: AgentRequest): Promise<string>;
  /** The usage of a request whose prompt is computed, and one token of its answer. */
  usageOf(request: AgentRequest): Promise<Readonly<Record<string, number>>>;
}

/** A server of a small model with the chat template of a real one. */
export async function serveTemplate(model: string, template: string): Promise<ServedTemplate> {
  const chatTemplate = readFileSync(chatTemplateFile(template), 'utf8');
  const engine: AsyncEngine = await createEngine({ model, chatTemplate, threads: 1, kvCacheMemory: 64 << 20 });
  const { generate } = engine;
  let prompt = '';
  let runs = false;
  engine.generate = (request, options) => {
    prompt = engine.detokenize(request.prompt as ArrayLike<number>, { skipSpecialTokens: false });
    return runs ? generate.call(engine, request, options) : OutputStream.ended(1, 'stop');
  };
  const server = new Server(engine, { version: '1', logLevel: 'silent' });
  const origin = `http://127.0.0.1:${await server.listen(0, '127.0.0.1')}`;
  const post = async ({ path, body }: AgentRequest): Promise<string> => {
    const headers = { 'content-type': 'application/json' };
    const response = await fetch(origin + path, { method: 'POST', headers, body: JSON.stringify(body) });
    const text = await response.text();
    if (response.status !== 200) throw new Error(`${response.status} ${text}`);
    return text;
  };
  return {
    async promptOf(request) {
      await post(request);
      return prompt;
    },
    async usageOf({ path, body }) {
      runs = true;
      try {
        const limit = path.startsWith('/v1/responses') ? { max_output_tokens: 1 } : { max_tokens: 1 };
        const { stream_options: _, ...rest } = body;
        return (JSON.parse(await post({ path, body: { ...rest, ...limit, stream: false } })) as AnswerWithUsage).usage;
      } finally {
        runs = false;
      }
    },
    async [Symbol.asyncDispose]() {
      await server.app.close();
      await engine.close();
    },
  };
}

interface AnswerWithUsage {
  readonly usage: Readonly<Record<string, number>>;
}
