/** The two engines as a library: `LLM` for finished answers, `createEngine` for streams. docs/library.md explains them. */
import { createEngine, LLM } from 'kvasir';

export async function offline(): Promise<void> {
  const llm = new LLM({ model: 'path/to/model.gguf' });
  const [output] = await llm.generate('Once upon a time', { maxTokens: 64, temperature: 0.8, seed: 42 });
  console.log(output?.outputs[0]?.text);
  await llm.close();
}

export async function stream(): Promise<void> {
  const engine = await createEngine({ model: 'path/to/model.gguf' });
  const signal = AbortSignal.timeout(10_000);
  for await (const delta of engine.generate({ prompt: 'Once upon a time' }, { signal })) {
    process.stdout.write(delta.text);
  }
  await engine.close();
}

export async function cachedKv(longSystemPrompt: string): Promise<void> {
  await using engine = await createEngine({ model: 'path/to/model.gguf' });
  const prefix = { prompt: longSystemPrompt };
  await engine.kv?.prefetch(prefix);
  await engine.kv?.pin(prefix, { ttlSeconds: 3600 });
  console.log(await engine.kv?.lookup(prefix));
}

export async function embeddingsAndScores(): Promise<void> {
  await using embedder = new LLM({ model: 'path/to/embedding-model.gguf' });
  const [vector] = await embedder.embed('The fox sleeps.', { dimensions: 256 });
  await using reranker = new LLM({ model: 'path/to/reranker.gguf' });
  const [first, second] = await reranker.score('What do foxes eat?', ['Foxes eat mice.', 'The sky is blue.']);
  console.log(vector?.embedding.length, first, second);
}

export async function chat(): Promise<void> {
  await using engine = await createEngine({ model: 'path/to/model.gguf' });
  const tools = [
    {
      type: 'function',
      function: {
        name: 'get_weather',
        description: 'The weather of a city.',
        parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
      },
    },
  ] as const;
  const messages = [{ role: 'user', content: 'What is the weather in Rome?' }];
  for await (const { reasoning, content, toolCalls, finish } of engine.chat({ messages, tools })) {
    process.stderr.write(reasoning);
    process.stdout.write(content);
    for (const { name, arguments: text } of toolCalls) process.stdout.write(name ?? text);
    if (finish?.reason === 'tool_calls') console.log(finish.message.toolCalls);
  }
}

export async function answerTools(): Promise<void> {
  await using llm = new LLM({ model: 'path/to/model.gguf' });
  const messages = [
    { role: 'user', content: 'What is the weather in Rome?' },
    {
      role: 'assistant',
      content: '',
      toolCalls: [{ id: 'call_1', name: 'get_weather', arguments: '{"city":"Rome"}' }],
    },
    { role: 'tool', toolCallId: 'call_1', content: 'sunny' },
  ];
  const [output] = await llm.chat(messages, { maxTokens: 100 });
  console.log(output?.outputs[0]?.message.content);
  for await (const { content } of llm.chat(messages, {}, { stream: true })) process.stdout.write(content);
}

export async function template(): Promise<void> {
  await using engine = await createEngine({ model: 'path/to/model.gguf' });
  const prompt = engine.applyChatTemplate([{ role: 'user', content: 'Hello!' }]);
  console.log(prompt.text, engine.tokenize(prompt).length);
  for await (const { text } of engine.generate({ prompt })) process.stdout.write(text);
}
