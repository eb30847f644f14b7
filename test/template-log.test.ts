import { expect, it } from 'vitest';
import type { EngineEvent } from '../src/engine/contract.ts';
import { createEngine } from '../src/index.ts';

const chatTemplate = `{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('Only one') }}{% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}`;

it('the log says once what of a conversation was changed for the chat template', async () => {
  const events: EngineEvent[] = [];
  const onEvent = (event: EngineEvent): void => void events.push(event);
  const engine = await createEngine({
    model: 'models/kvasir-demo.gguf',
    threads: 1,
    kvCacheMemory: 8 << 20,
    chatTemplate,
    onEvent,
  });
  try {
    const messages = ['A', 'B', 'C'].map((content, i) => ({ role: i < 2 ? 'system' : 'user', content }));
    const text = '[system]A\n\nB[user]C';
    expect((await engine.renderChat(messages)).text).toBe(text);
    expect((await engine.renderChat(messages)).text).toBe(text);
    expect(engine.applyChatTemplate(messages).text).toBe(text);
    const told = events.filter(({ message }) => message.includes('chat template'));
    expect(told).toEqual([expect.objectContaining({ level: 'warn', message: expect.stringContaining('are joined') })]);
  } finally {
    await engine.close();
  }
});
