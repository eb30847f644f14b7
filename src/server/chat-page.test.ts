import { createHash } from 'node:crypto';
import { Script } from 'node:vm';
import { describe, expect, it } from 'vitest';
import { LetterEngine } from '../../test/support/letter-engine.ts';
import { chatPage } from './chat-page.ts';
import { Server } from './server.ts';

const inside = (tag: string): string => new RegExp(`<${tag}>([\\s\\S]*)</${tag}>`).exec(chatPage.html)![1]!;

describe('the chat page', () => {
  it('has a script that parses', () => {
    expect(() => new Script(inside('script'))).not.toThrow();
  });

  it('has a policy that allows only its own script and style', () => {
    const policy = chatPage.headers['content-security-policy'];
    for (const tag of ['script', 'style']) {
      const hash = createHash('sha256').update(inside(tag)).digest('base64');
      expect(policy).toContain(`${tag}-src 'sha256-${hash}'`);
    }
    expect(chatPage.html).not.toMatch(/https?:|src=|innerHTML/);
  });

  it('is served without a key', async () => {
    const server = new Server(new LetterEngine(), { version: '0.0.0', apiKey: 'sesame', logLevel: 'silent' });
    const port = await server.listen(0, '127.0.0.1');
    const response = await fetch(`http://127.0.0.1:${port}/`);
    expect(response.status).toBe(200);
    expect(response.headers.get('content-type')).toBe('text/html; charset=utf-8');
    expect(await response.text()).toBe(chatPage.html);
    await server.app.close();
  });
});
