/** The examples of docstrings. `test/documents.test.ts` compares the two, and the compiler checks these. */
import { generateText } from 'ai';
import fastify from 'fastify';
import { type ChatRequest, createEngine, type GenerateRequest, KvasirError, LLM, type Tool } from 'kvasir';
import { createKvasir } from 'kvasir/ai-sdk';
import { registerConnector } from 'kvasir/connector';
import { createServer } from 'kvasir/server';
import { traceEngine } from 'kvasir/tracing';
import { MapConnector } from './map-connector.ts';

const model = 'model.gguf';

export async function engine(): Promise<void> {
  const engine = await createEngine({ model: 'model.gguf' });
  for await (const { text } of engine.generate({ prompt: 'Once upon a time' })) process.stdout.write(text);
  await engine.close();
}

export async function request(): Promise<void> {
  await using engine = await createEngine({ model });
  const request: GenerateRequest = {
    prompt: 'Once upon a time',
    params: { maxTokens: 64, temperature: 0.8, seed: 42 },
    cacheSalt: 'tenant-1',
  };
  for await (const { text } of engine.generate(request)) process.stdout.write(text);
}

export async function chat(): Promise<void> {
  await using engine = await createEngine({ model });
  const request: ChatRequest = {
    messages: [{ role: 'user', content: 'Name three primes.' }],
    params: { temperature: 0 },
  };
  for await (const { content, finish } of engine.chat(request)) {
    process.stdout.write(content);
    if (finish !== undefined) console.log(finish.reason, finish.message);
  }
}

export async function tools(): Promise<void> {
  const weather: Tool = {
    type: 'function',
    function: {
      name: 'weather',
      parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
    },
  };
  await using engine = await createEngine({ model });
  const messages = [{ role: 'user', content: 'What is the weather in Rome?' }];
  for await (const { toolCalls } of engine.chat({ messages, tools: [weather] })) console.log(toolCalls);
}

export async function errors(): Promise<void> {
  await using engine = await createEngine({ model });
  try {
    for await (const { text } of engine.generate({ prompt: '' })) process.stdout.write(text);
  } catch (error) {
    if (!(error instanceof KvasirError)) throw error;
    console.error(error.code, error.message, error.retryable ? 'Try again.' : '');
  }
}

export async function offline(): Promise<void> {
  await using llm = new LLM({ model: 'model.gguf' });
  const [output] = await llm.generate('Once upon a time', { maxTokens: 32, temperature: 0 });
  console.log(output?.outputs[0]?.text);
}

export async function connector(): Promise<void> {
  registerConnector('MapConnector', async () => MapConnector);
  const engine = await createEngine({
    model: 'model.gguf',
    kvTransferConfig: { kv_connector: 'MapConnector', kv_role: 'kv_both' },
  });
  await engine.close();
}

export async function server(): Promise<void> {
  const engine = await createEngine({ model: 'model.gguf' });
  const app = fastify();
  await app.register(createServer(engine).plugin, { prefix: '/llm' });
  await app.listen({ port: 3000 });
}

export async function tracing(): Promise<void> {
  const engine = await createEngine({ model: 'model.gguf' });
  const stop = await traceEngine(engine);
  stop();
  await engine.close();
}

export async function aiSdk(): Promise<void> {
  await using provider = createKvasir({ model: 'model.gguf' });
  const { text } = await generateText({ model: provider(), prompt: 'Tell me a story.' });
  console.log(text);
}
