/** `usage` reports verified drafts: `accepted_prediction_tokens` and `rejected_prediction_tokens`, by OpenAI's client. */
import type OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Clock } from '../../src/base/clock.ts';
import { createEngine, openMeasuredEngine } from '../../src/compose.ts';
import type { AsyncEngine } from '../../src/engine/contract.ts';
import { serveEngine } from '../support/served-model.ts';

const name = 'kvasir-demo';
const options = { model: 'models/kvasir-demo.gguf', kvCacheMemory: 16 << 20, maxModelLen: 512, threads: 1 };
const speculativeConfig = {
  method: 'ngram',
  num_speculative_tokens: 8,
  prompt_lookup_min: 1,
  prompt_lookup_max: 4,
} as const;

/** By this clock, a step with drafts takes as long as a step without. So drafts are worth their time on every machine. */
class EvenClock implements Clock {
  #nowMs = 0;
  nowMs(): number {
    return this.#nowMs++;
  }
}

const words = 'The little dog ran to the red ball.';
/** The output repeats a sentence, so drafts are right, except for one word. */
const structured_outputs = { regex: '(The little dog ran to the [a-z]{3,8} ball\\. ){8}' };
const common = { model: name, max_tokens: 96, temperature: 1, seed: 5, structured_outputs };
const withUsage = { stream: true, stream_options: { include_usage: true } } as const;

const engines: AsyncEngine[] = [];
const closing: (() => Promise<void>)[] = [];
let plain: OpenAI;
let drafting: OpenAI;

beforeAll(async () => {
  engines.push(await createEngine(options));
  const measured = await openMeasuredEngine({ ...options, speculativeConfig }, undefined, new EvenClock());
  engines.push(measured.engine);
  const served = await Promise.all(engines.map((engine) => serveEngine(engine)));
  closing.push(...served.map(({ close }) => close));
  [plain, drafting] = served.map(({ client }) => client) as [OpenAI, OpenAI];
});
afterAll(async () => {
  for (const close of closing) await close();
  for (const engine of engines) await engine.close();
});

interface Answer {
  readonly text: string;
  readonly usage: OpenAI.CompletionUsage;
}

const completion = async (client: OpenAI): Promise<Answer> => {
  const { choices, usage } = await client.completions.create({ ...common, prompt: words });
  return { text: choices[0]!.text, usage: usage! };
};

const streamedCompletion = async (client: OpenAI): Promise<Answer> => {
  let text = '';
  let usage: OpenAI.CompletionUsage | null | undefined;
  for await (const chunk of await client.completions.create({ ...common, ...withUsage, prompt: words })) {
    text += chunk.choices[0]?.text ?? '';
    usage = chunk.usage ?? usage;
  }
  return { text, usage: usage! };
};

const messages = [{ role: 'user', content: words }] as const;

const chat = async (client: OpenAI): Promise<Answer> => {
  const { choices, usage } = await client.chat.completions.create({ ...common, messages: [...messages] });
  return { text: choices[0]!.message.content!, usage: usage! };
};

const streamedChat = async (client: OpenAI): Promise<Answer> => {
  let text = '';
  let usage: OpenAI.CompletionUsage | null | undefined;
  for await (const chunk of await client.chat.completions.create({
    ...common,
    ...withUsage,
    messages: [...messages],
  })) {
    text += chunk.choices[0]?.delta.content ?? '';
    usage = chunk.usage ?? usage;
  }
  return { text, usage: usage! };
};

describe.each([
  ['a completion', completion],
  ['a streamed completion', streamedCompletion],
  ['a chat', chat],
  ['a streamed chat', streamedChat],
])('the usage of %s', (_, ask) => {
  it('has the accepted and the rejected drafts with speculation', async () => {
    const [, engine] = engines;
    const before = engine!.stats();
    const { text, usage } = await ask(drafting);
    const { draftedTokens, acceptedTokens } = engine!.stats();
    const accepted = acceptedTokens - before.acceptedTokens;
    const rejected = draftedTokens - before.draftedTokens - accepted;
    expect(accepted).toBeGreaterThan(0);
    expect(rejected).toBeGreaterThan(0);
    expect(usage.completion_tokens_details).toEqual({
      accepted_prediction_tokens: accepted,
      rejected_prediction_tokens: rejected,
    });
    expect(usage.completion_tokens).toBeGreaterThan(accepted);
    expect(text).toBe((await ask(plain)).text);
  });

  it('has no such fields without speculation', async () => {
    expect((await ask(plain)).usage).not.toHaveProperty('completion_tokens_details');
  });
});
