import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LetterEngine, lettersOf } from '../../../../test/support/letter-engine.ts';
import { systemClock } from '../../../base/clock.ts';
import type { AsyncEngine } from '../../../engine/contract.ts';
import { GenerationMeter } from '../../generation/generation.ts';
import { Server } from '../../server.ts';
import { TextOffset } from './logprobs.ts';
import { parseCompletion } from './parse.ts';
import { echoLogprobs } from './prompt-logprobs.ts';
import { completionRenderer } from './render.ts';

/** In this engine, the token at position `p` of a prompt has the logprob `-p / 8` and the rank 30. */
let server: Server;
let origin: string;

beforeAll(async () => {
  server = new Server(new LetterEngine(), { version: '0.0.0', logLevel: 'silent' });
  origin = `http://127.0.0.1:${await server.listen(0, '127.0.0.1')}`;
});
afterAll(() => server.app.close());

async function post(path: string, body: unknown) {
  const headers = { 'content-type': 'application/json' };
  const response = await fetch(origin + path, { method: 'POST', headers, body: JSON.stringify(body) });
  return response.text();
}
const complete = async (body: unknown) => JSON.parse(await post('/v1/completions', body));

describe('prompt_logprobs', () => {
  it('has one entry per prompt token, with the token and the most probable tokens by id', async () => {
    const { choices } = await complete({ prompt: ['xyz', 'wb'], max_tokens: 2, prompt_logprobs: 2 });
    const top = { 97: { logprob: 0, rank: 1, decoded_token: 'a' }, 98: { logprob: -1, rank: 2, decoded_token: 'b' } };
    expect(choices[0].prompt_logprobs).toEqual([
      null,
      { ...top, 121: { logprob: -1 / 8, rank: 30, decoded_token: 'y' } },
      { ...top, 122: { logprob: -2 / 8, rank: 30, decoded_token: 'z' } },
    ]);
    // The token of the prompt is among the most probable tokens.
    expect(choices[1].prompt_logprobs).toEqual([
      null,
      { ...top, 98: { logprob: -1 / 8, rank: 30, decoded_token: 'b' } },
    ]);
    expect(choices[0].logprobs).toBeNull();
    expect(choices[0].text).toBe(lettersOf(3, 2));
  });

  it('is a field of the response of a chat', async () => {
    const messages = [{ role: 'user', content: 'hi' }];
    const body = JSON.parse(await post('/v1/chat/completions', { messages, max_tokens: 1, prompt_logprobs: 0 }));
    expect(body.prompt_logprobs).toHaveLength(body.usage.prompt_tokens);
    expect(body.prompt_logprobs.slice(0, 2)).toEqual([
      null,
      { 117: { logprob: -1 / 8, rank: 30, decoded_token: 'u' } },
    ]);
    const without = JSON.parse(await post('/v1/chat/completions', { messages, max_tokens: 1 }));
    expect(without).not.toHaveProperty('prompt_logprobs');
  });

  it('needs no output', async () => {
    const { choices, usage } = await complete({ prompt: 'xyz', max_tokens: 0, prompt_logprobs: 0 });
    expect(choices[0]).toMatchObject({ text: '', finish_reason: 'length' });
    expect(choices[0].prompt_logprobs).toHaveLength(3);
    expect(usage).toMatchObject({ prompt_tokens: 3, completion_tokens: 0, total_tokens: 3 });
  });
});

describe('echo with logprobs', () => {
  const echoed = {
    tokens: ['x', 'y', 'z'],
    token_logprobs: [null, -1 / 8, -2 / 8],
    top_logprobs: [null, { a: 0, y: -1 / 8 }, { a: 0, z: -2 / 8 }],
    text_offset: [0, 1, 2],
  };

  it('has the logprobs of the prompt before those of the completion', async () => {
    const { choices } = await complete({ prompt: 'xyz', max_tokens: 2, echo: true, logprobs: 1 });
    const [first, second] = lettersOf(3, 2);
    expect(choices[0].text).toBe(`xyz${first}${second}`);
    expect(choices[0].logprobs).toEqual({
      tokens: [...echoed.tokens, first, second],
      token_logprobs: [...echoed.token_logprobs, -0.5, -0.5],
      top_logprobs: [...echoed.top_logprobs, { [first!]: -0.5 }, { [second!]: -0.5 }],
      text_offset: [...echoed.text_offset, 3, 4],
    });
  });

  it('has only the prompt with max_tokens 0, also of tokens, of several prompts and of several completions', async () => {
    const body = { max_tokens: 0, echo: true, logprobs: 1 };
    expect((await complete({ ...body, prompt: 'xyz' })).choices[0]).toMatchObject({ text: 'xyz', logprobs: echoed });
    const { choices, usage } = await complete({ ...body, prompt: [[120, 121, 122], [120]], n: 2 });
    expect(choices.map(({ text }: { text: string }) => text)).toEqual(['xyz', 'xyz', 'x', 'x']);
    expect(choices[1].logprobs).toEqual(echoed);
    expect(choices[2].logprobs).toEqual({
      tokens: ['x'],
      token_logprobs: [null],
      top_logprobs: [null],
      text_offset: [0],
    });
    expect(usage.completion_tokens).toBe(0);
  });

  it('has each kind of logprobs with its own number of top tokens', async () => {
    const { choices } = await complete({ prompt: 'xyz', max_tokens: 0, echo: true, logprobs: 1, prompt_logprobs: 0 });
    expect(choices[0].logprobs).toEqual(echoed);
    expect(Object.keys(choices[0].prompt_logprobs[1])).toEqual(['121']);
  });

  it('is the same for all choices of a prompt, also for those that are kept of more', async () => {
    const body = { prompt: ['xyz', 'wb'], max_tokens: 1, echo: true, logprobs: 1, prompt_logprobs: 0, n: 2 };
    for (const more of [{}, { best_of: 3 }]) {
      const { choices } = await complete({ ...body, ...more });
      expect(choices).toHaveLength(4);
      for (const { logprobs } of choices.slice(0, 2)) {
        expect(logprobs.token_logprobs).toEqual([...echoed.token_logprobs, -0.5]);
      }
      expect(choices[1].prompt_logprobs).toEqual(choices[0].prompt_logprobs);
      expect(choices[3].prompt_logprobs).toHaveLength(2);
    }
  });

  it('is streamed before the text of other choices, also if their text is computed before', () => {
    const engine = new LetterEngine();
    const prompts = [{ tokens: Int32Array.of(120, 121, 122), maxTokens: 2 }];
    const body = { prompt: 'xyz', echo: true, logprobs: 0, stream: true };
    const asked = parseCompletion(body, { vocabSize: 258, maxModelLen: 256, choicesMax: 8 });
    const usage = new GenerationMeter(prompts, 2, systemClock, 0);
    const head = { engine, id: 'cmpl-1', created: 1, prompts, n: 2, usage, asked };
    const chunksOf = (deltas: readonly object[]): number[][] => {
      const renderer = completionRenderer({ ...head, echoes: ['xyz'] });
      const stats = { promptTokens: 3, cachedTokens: 0, outputTokens: 0, computedTokens: 0 };
      const whole = { text: '', tokenIds: [], logprobs: [], stats: { ...stats, recomputedTokens: 0, preemptions: 0 } };
      return deltas.map((delta) =>
        renderer
          .chunks({ index: 0, ...whole, ...delta })
          .map((chunk) => ('choices' in chunk ? chunk.choices[0]!.index : Number.NaN)),
      );
    };
    const scored = (index: number) => ({
      index,
      text: 'a',
      tokenIds: [97],
      logprobs: [{ logprob: -1, rank: 1, top: [] }],
    });
    const entry = { logprob: -1, rank: 1, top: [] };
    const half = { promptLogprobs: [entry] };
    expect(chunksOf([scored(1), half, scored(1), half, scored(0), scored(1)])).toEqual([[], [], [], [1, 1], [0], [1]]);
  });

  it('streams the prompt with all its logprobs in the first chunk', async () => {
    for (const maxTokens of [0, 2]) {
      const text = await post('/v1/completions', {
        ...{ prompt: 'xyz', max_tokens: maxTokens, echo: true, logprobs: 1, stream: true },
      });
      const data = text.split('\n\n').filter((event) => event.startsWith('data: {'));
      const chunks = data.map((event) => JSON.parse(event.slice(6)).choices[0]);
      expect(chunks[0].text).toBe(`xyz${lettersOf(3, Math.min(1, maxTokens))}`);
      expect(chunks[0].logprobs.token_logprobs.slice(0, 3)).toEqual(echoed.token_logprobs);
      expect(chunks.flatMap((chunk) => chunk.logprobs.text_offset)).toEqual([0, 1, 2, 3, 4].slice(0, 3 + maxTokens));
    }
  });

  it('gives a control token that the tokenizer added the offset of the next token', async () => {
    const { choices } = await complete({ prompt: [256, 120, 121], max_tokens: 0, echo: true, logprobs: 0 });
    expect(choices[0].text).toBe('xy');
    expect(choices[0].logprobs.text_offset).toEqual([0, 0, 1]);
    expect(choices[0].logprobs.tokens).toEqual(['<|im_start|>', 'x', 'y']);
  });
});

describe('offsets in texts count characters, as vLLM does', () => {
  const bytes = (text: string) => new TextEncoder().encode(text);
  /** The tokens of `é🙂日🙂a`: whole characters, and parts of them. */
  const tokens = [bytes('é'), bytes('🙂').subarray(0, 1), bytes('🙂').subarray(1), bytes('日🙂'), bytes('a')];
  const offsets = [0, 1, 1, 2, 4];

  it('of completions, after the echoed text', () => {
    const offsetsAfter = (text: string) => {
      const offset = new TextOffset(text);
      return tokens.map((token) => offset.next(token));
    };
    expect(offsetsAfter('')).toEqual(offsets);
    expect(offsetsAfter('🙂🙂')).toEqual(offsets.map((offset) => offset + 2));
    expect(offsetsAfter('\ud83d\ud83d')).toEqual(offsets.map((offset) => offset + 2));
  });

  it('of echoed prompts', () => {
    const engine = { tokenBytes: (id: number) => tokens[id]! } as unknown as AsyncEngine;
    const scored = { tokens: [0, 1, 2, 3, 4], entries: [] };
    expect([...echoLogprobs(engine, scored, 0, 'é🙂日🙂a').text_offset]).toEqual(offsets);
  });
});
