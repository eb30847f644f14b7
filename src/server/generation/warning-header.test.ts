import { describe, expect, it } from 'vitest';
import { closeServers, serveLetters } from '../apis/responses/served-letters.suite.ts';

closeServers();

const messages = [{ role: 'user', content: 'a' }];
const cut = /^299 kvasir "max_tokens: 9000 was cut to (\d+), the rest of the context"$/;

/** Also for answers that are no JSON. */
async function send(url: string, body: object) {
  const options = { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) };
  const response = await fetch(url, options);
  return { status: response.status, headers: response.headers, text: await response.text() };
}

describe('max_tokens beyond the context', () => {
  it.each([
    ['/v1/completions', { prompt: 'ab', max_tokens: 9000 }],
    ['/v1/completions', { prompt: ['ab', 'c'], max_tokens: 9000, n: 2 }],
    ['/v1/chat/completions', { messages, max_completion_tokens: 9000 }],
    ['/v1/chat/completions', { messages, max_tokens: 9000, stream: true }],
    ['/v1/responses', { input: 'a', max_output_tokens: 9000 }],
    ['/v1/responses', { input: 'a', max_output_tokens: 9000, stream: true }],
    ['/v1/messages', { messages, max_tokens: 9000 }],
    ['/api/chat', { messages, options: { num_predict: 9000 } }],
    ['/api/generate', { prompt: 'a', stream: false, options: { num_predict: 9000 } }],
  ])('is cut by %s, and refused with strictFields', async (path, body) => {
    const open = await serveLetters({ answer: 'Sunny.' });
    const { status, headers } = await send(open.origin + path, body);
    expect([status, headers.get('warning')]).toEqual([200, expect.stringMatching(cut)]);
    const strict = await serveLetters({ answer: 'Sunny.' }, { strictFields: true });
    const refused = await send(strict.origin + path, body);
    expect([refused.status, refused.text]).toEqual([
      400,
      expect.stringMatching(/\(\d+ in the prompt, 9000 in the completion\)|\d+ \+ 9000 > 5000/),
    ]);
  });

  it('ends the answer with the context, and the log line of the request says so', async () => {
    const lines: string[] = [];
    const logDestination = { write: (line: string) => void lines.push(line) };
    const { post } = await serveLetters({}, { logLevel: 'info', logDestination });
    const prompt = 'x'.repeat(4990);
    const answer = await post({ prompt, max_tokens: 9000, ignore_eos: true, top_kk: 1 }, '/v1/completions');
    const { choices, usage } = answer.body as unknown as {
      readonly choices: readonly [{ readonly finish_reason: string }];
      readonly usage: { readonly prompt_tokens: number; readonly completion_tokens: number };
    };
    const room = 5000 - usage.prompt_tokens;
    expect([choices[0].finish_reason, usage.completion_tokens]).toEqual(['length', room]);
    expect(answer.headers.get('warning')).toBe(
      `299 kvasir "ignored: top_kk", 299 kvasir "max_tokens: 9000 was cut to ${room}, the rest of the context"`,
    );
    await expect.poll(() => lines.join('')).toContain(`"maxTokensCut":"9000 to ${room}"`);
  });

  it('is refused if the prompt fills the context, or if min_tokens does not fit', async () => {
    const { post } = await serveLetters({});
    const full = await post({ prompt: 'x'.repeat(5000), max_tokens: 9000 }, '/v1/completions');
    expect([full.status, JSON.stringify(full.body)]).toEqual([
      400,
      expect.stringContaining('(5000 in the prompt, 1 in the completion)'),
    ]);
    const least = await post({ prompt: 'a', max_tokens: 9000, min_tokens: 6000 }, '/v1/completions');
    expect([least.status, JSON.stringify(least.body)]).toEqual([
      400,
      expect.stringContaining('9000 in the completion'),
    ]);
  });
});
