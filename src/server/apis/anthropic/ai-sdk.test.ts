import { createAnthropic } from '@ai-sdk/anthropic';
import { generateText, jsonSchema, type LanguageModel, type ModelMessage, streamText, tool } from 'ai';
import { describe, expect, it } from 'vitest';
import { closeServers, serveLetters } from '../responses/served-letters.suite.ts';

/** `/v1/messages` by the AI SDK's provider for Anthropic, which leaves out thoughts without a signature when it sends an answer back. */
closeServers();

const call = '<tool_call>{"name":"get_weather","arguments":{"city":"Rome"}}</tool_call>';
const tools = {
  get_weather: tool({
    description: 'The weather of a city.',
    inputSchema: jsonSchema<{ city: string }>({ type: 'object', properties: { city: { type: 'string' } } }),
    execute: async ({ city }) => `21 degrees in ${city}`,
  }),
};
const question = { role: 'user', content: 'Rome?' } as const;

async function served(answer: string) {
  const all = await serveLetters({ answer, template: 'qwen3' });
  const model = createAnthropic({ baseURL: `${all.origin}/v1`, apiKey: 'none' })('letters');
  return { ...all, model };
}

describe.each(['streamed', 'whole'] as const)('a %s answer', (form) => {
  const answerOf = async (model: LanguageModel, messages: ModelMessage[], maxOutputTokens: number) => {
    const options = { model, messages, tools, maxOutputTokens };
    if (form === 'whole') return await generateText(options);
    const result = streamText(options);
    await result.consumeStream();
    return { reasoningText: await result.reasoningText, response: await result.response };
  };

  it.each([
    ['thoughts and text', '<think>Hm.</think>Sunny.', 1000],
    ['thoughts and a call', `<think>Hm.</think>${call}`, 1000],
    ['thoughts alone, which the limit cut', '<think>Hm. A long thought.</think>Sunny.', 12],
  ])('with %s is sent back whole', async (_, answer, limit) => {
    const { model, rendered } = await served(answer);
    const first = await answerOf(model, [question], limit);
    expect(first.reasoningText).toMatch(/^Hm\./);
    const next = [question, ...first.response.messages, { role: 'user', content: 'And now?' } as const];
    await answerOf(model, next, limit);
    const sent = rendered[1]!.messages.find(({ role }) => role === 'assistant');
    expect(sent).toMatchObject({ reasoning_content: first.reasoningText });
  });
});
