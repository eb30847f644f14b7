import { afterAll, expect, it } from 'vitest';
import { LetterEngine } from '../../../test/support/letter-engine.ts';
import { Server } from '../server.ts';

const engine = new LetterEngine();
const server = new Server(engine, { version: '1.2.3', logLevel: 'silent', maxNumSeqs: 7 });
const origin = `http://127.0.0.1:${await server.listen(0, '127.0.0.1')}`;
afterAll(() => server.app.close());

const json = async (path: string, body?: unknown): Promise<Record<string, unknown>> => {
  const headers = { 'content-type': 'application/json' };
  const response = await fetch(
    origin + path,
    body === undefined ? {} : { method: 'POST', headers, body: JSON.stringify(body) },
  );
  return { status: response.status, ...(JSON.parse(await response.text()) as Record<string, unknown>) };
};

it('/detokenize takes as many ids as /tokenize gives, also more than the context', async () => {
  const prompt = 'long '.repeat(1000);
  const { tokens, count } = await json('/tokenize', { prompt });
  expect(count).toBe(5000);
  expect(await json('/detokenize', { tokens })).toEqual({ status: 200, prompt, content: prompt });
  const wrong = await json('/detokenize', { tokens: [...(tokens as number[]), 99_999] });
  expect(wrong).toMatchObject({ status: 400, error: { param: 'tokens[5000]' } });
});

it("/props says how long the context is, in llama-server's form, without the path of the model", async () => {
  const props = await json('/props');
  expect(props).toMatchObject({
    status: 200,
    default_generation_settings: { n_ctx: 256, params: {} },
    total_slots: 7,
    model_alias: 'letters',
    recommended_sampling: { temperature: 0.7, min_p: 0.05 },
    chat_template: engine.model.chatTemplate ?? '',
  });
  expect(props.model_path).not.toContain('/');
});
