/** OpenAI's API in an application that has its own HTTP server. */
import { createServer as createHttpServer } from 'node:http';
import fastify from 'fastify';
import { createEngine } from 'kvasir';
import { createServer } from 'kvasir/server';

const model = 'path/to/model.gguf';

export async function inFastify(): Promise<void> {
  const engine = await createEngine({ model });
  const app = fastify();
  await app.register(createServer(engine, { apiKey: 'secret' }).plugin, { prefix: '/llm' });
  app.addHook('onClose', () => engine.close());
  await app.listen({ port: 3000 });
}

export async function inNode(): Promise<void> {
  const engine = await createEngine({ model });
  const { handler } = createServer(engine, { prefix: '/llm' });
  createHttpServer((request, response) => {
    if (request.url?.startsWith('/llm/')) handler(request, response);
    else response.end('hello');
  }).listen(3000);
}

/** A route of Next: `export { POST }` from `app/llm/[...path]/route.ts`. */
export async function webHandler(): Promise<(request: Request) => Promise<Response>> {
  const llm = createServer(await createEngine({ model }), { prefix: '/llm' });
  const answer = (request: Request): Promise<Response> => llm.fetch(request);
  return answer;
}
