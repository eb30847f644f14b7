/** What a first message to the bundled models gets: a story, also if it asks for something else. */
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createEngine } from '../src/compose.ts';
import type { AsyncEngine } from '../src/engine/contract.ts';
import { quotedAnswers } from './support/quoted-answers.ts';
import { serveEngine } from './support/served-model.ts';

const firstMessages = [
  'Tell me a story about a cat.',
  'tell me a story',
  'Write a short story about a dog and a bird.',
  'Hello!',
  'Name three primes.',
  'What is the capital of France?',
  'What is 2+2?',
  'Write hello world in Python',
  'Explain the history of Rome.',
  'Tell me a joke.',
  'test',
  '你好',
];
/** The beginnings of tales in `tools/demo-model/grammar.py`. */
const beginning = /(Once upon a time there was|There once was|lived in a little house|\b(In|At|On|By) the \w+ lived) /;
/** As in "Nameameame": the same letters or words four times in a row. */
const repetition = /(.{2,20}?)\1{3}/s;

describe.each(['kvasir-demo', 'kvasir-hybrid'])('%s', (name) => {
  let engine: AsyncEngine;
  beforeAll(async () => {
    const limits = { threads: 1, kvCacheMemory: 32 << 20, maxModelLen: 1024 };
    engine = await createEngine({ model: `models/${name}.gguf`, ...limits });
  });
  afterAll(() => engine.close());

  it('has the template of its recipe, and says what it is and how to get a model that answers', () => {
    expect(engine.model.chatTemplate).toBe(readFileSync('tools/demo-model/chat-template.jinja', 'utf8'));
    expect(engine.model.description).toMatch(
      /^A very small storyteller.* For a model that answers: npx kvasir serve hf:/,
    );
  });

  it.each(firstMessages)('answers "%s" with a story', async (content) => {
    let story = '';
    const params = { temperature: 0, maxTokens: 80 };
    for await (const delta of engine.chat({ messages: [{ role: 'user', content }], params })) story += delta.content;
    expect(story).toMatch(beginning);
    expect(story).not.toMatch(repetition);
  });

  it('reads later messages as they are', () => {
    const turn = (role: string, content: string): string => `<|im_start|>${role}\n${content}<|im_end|>\n`;
    const said = ['Hi', 'There once was a fox.', 'Who is the hero?'] as const;
    const messages = said.map((content, i) => ({
      role: i % 2 === 0 ? ('user' as const) : ('assistant' as const),
      content,
    }));
    const rest = turn('assistant', said[1]) + turn('user', said[2]);
    expect(engine.applyChatTemplate(messages).text).toBe(
      `${turn('user', 'Hi Tell me a story.')}${rest}<|im_start|>assistant\n`,
    );
    const system = { role: 'system' as const, content: 'Be kind.' };
    const asked = { role: 'user' as const, content: 'A Story, please' };
    expect(engine.applyChatTemplate([system, asked], { addGenerationPrompt: false }).text).toBe(
      turn('system', system.content) + turn('user', asked.content),
    );
  });
});

it('the bundled model gives the answer that the documents quote', async () => {
  const engine = await createEngine({ model: 'models/kvasir-demo.gguf', threads: 1, kvCacheMemory: 32 << 20 });
  const { client, close } = await serveEngine(engine);
  const examples = quotedAnswers('bundled model');
  expect(examples.map(({ url }) => url)).toContain('/v1/chat/completions');
  for (const { url, body, answer } of examples) {
    const headers = { 'content-type': 'application/json' };
    const answered = await fetch(new URL(url, client.baseURL), { method: 'POST', headers, body });
    expect(await answered.text()).toContain(answer);
  }
  const [card] = (await client.models.list()).data;
  expect(card).toMatchObject({ description: engine.model.description });
  await close();
  await engine.close();
});
