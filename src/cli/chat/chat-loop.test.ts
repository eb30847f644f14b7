import { PassThrough } from 'node:stream';
import { describe, expect, it, vi } from 'vitest';
import { LetterEngine, type LetterEngineOptions } from '../../../test/support/letter-engine.ts';
import { ChatLoop } from './chat-loop.ts';
import { Conversation } from './conversation.ts';

/** A conversation with answers of three letters, in a terminal or from a pipe. */
function chat(options: LetterEngineOptions & { isTerminal?: boolean; maxTokens?: number; system?: string } = {}) {
  const { isTerminal = false, maxTokens = 3, system, ...engineOptions } = options;
  const engine = new LetterEngine({ maxModelLen: 2000, ...engineOptions });
  const conversation = new Conversation(engine, { maxTokens }, system);
  const input = new PassThrough();
  const screen = new PassThrough();
  const seen = { stdout: '', stderr: '' };
  screen.on('data', (bytes) => {
    seen.stdout += String(bytes);
  });
  const sink = (name: 'stdout' | 'stderr') => ({
    write(text: string) {
      seen[name] += text;
    },
  });
  const end = new AbortController();
  const loop = new ChatLoop({
    conversation,
    context: {
      stdin: input,
      stdout: isTerminal ? screen : sink('stdout'),
      stderr: sink('stderr'),
      ...(isTerminal ? { terminal: { input, output: screen } } : {}),
    },
    signal: end.signal,
    showsStats: false,
    nowMs: () => 0,
  });
  return { engine, conversation, input, seen, end, done: loop.run() };
}

/** The whole output for lines of a pipe. */
async function outputOf(lines: readonly string[], options: Parameters<typeof chat>[0] = {}) {
  const { input, done, seen, conversation, engine } = chat(options);
  input.end(lines.map((line) => `${line}\n`).join(''));
  await done;
  return { ...seen, engine, messages: conversation.messages };
}

const cut = '(cut at the limit of its length: see --max-tokens and --max-model-len)\n';

describe('kvasir chat', () => {
  it('answers each line, with the conversation so far', async () => {
    const { stdout, messages, engine } = await outputOf(['Hello', '', 'Again'], { system: 'Be brief.' });
    expect(messages.map(({ role }) => role)).toEqual(['system', 'user', 'assistant', 'user', 'assistant']);
    const [, , first, , second] = messages;
    expect(stdout).toBe(`${first!.content}\n${cut}${second!.content}\n${cut}`);
    const [, last] = engine.requests;
    expect(engine.detokenize(last!.prompt as number[])).toContain(first!.content);
  });

  it('joins lines that end with a backslash', async () => {
    const { messages } = await outputOf(['one\\', 'two']);
    expect(messages[0]!.content).toBe('one\ntwo');
  });

  it('has commands', async () => {
    const { stdout, messages, engine } = await outputOf([
      ...['/help', '/retry', '/undo', '/system', 'one', '/retry', 'two', '/undo', '/systen', '/stats'],
      ...['/system Be kind.', '/system', 'three', '/exit', 'four'],
    ]);
    expect(stdout).toContain('Ctrl-C stops an answer');
    expect(stdout.match(/There is no question yet/g)).toHaveLength(2);
    expect(stdout).toContain('There is no system message.');
    expect(stdout).toContain('Removed: two\n');
    expect(stdout).toContain('There is no command /systen. Did you mean /system? /help shows all.');
    expect(stdout).toContain('\nBe kind.\n');
    expect(engine.requests).toHaveLength(4);
    expect(engine.requests[1]!.prompt).toEqual(engine.requests[0]!.prompt);
    expect(messages.map(({ content }) => content)).toMatchObject(['Be kind.', 'three', expect.any(String)]);
  });

  it('shows the speed of answers', async () => {
    const { stderr } = await outputOf(['/stats', 'one']);
    expect(stderr).toMatch(/^\[prompt \d+ tokens, 0 cached; first token after 0 ms; 3 tokens, Infinity tokens\/s\]\n$/);
  });

  it('takes a question back that does not fit, and goes on', async () => {
    const { stderr, messages } = await outputOf(['x'.repeat(3000), 'short']);
    expect(stderr).toMatch(
      /^error: This model's maximum context length is 2000 tokens.* \/new begins a new conversation\.\n$/,
    );
    expect(messages.map(({ content }) => content)[0]).toBe('short');
  });

  it('reports a failed engine, and keeps the conversation', async () => {
    const { stderr, messages } = await outputOf(['one'], { failAtStep: 2 });
    expect(stderr).toMatch(/^error: The engine failed/);
    expect(messages).toEqual([]);
  });

  describe('in a terminal', () => {
    const never = () => new Promise<void>(() => {});

    it('has a prompt, and ends at Ctrl-D', async () => {
      const { input, seen, done } = chat({ isTerminal: true });
      input.write('hello\r');
      await vi.waitFor(() => expect(seen.stdout).toContain(cut));
      input.write('\u0004');
      await done;
      expect(seen.stdout).toMatch(/> .*hello[\s\S]*> /);
      expect(seen.stdout.endsWith('\n')).toBe(true);
    });

    it('stops an answer at Ctrl-C, and keeps what has come', async () => {
      let steps = 0;
      const beforeStep = () => (++steps <= 2 ? Promise.resolve() : never());
      const { input, seen, done, conversation, engine } = chat({ isTerminal: true, beforeStep, maxTokens: 50 });
      input.write('hello\r');
      await vi.waitFor(() => expect(engine.requests).toHaveLength(1));
      await vi.waitFor(() => expect(steps).toBe(3));
      input.write('\u0003');
      await vi.waitFor(() => expect(seen.stdout).toContain('(stopped)'));
      expect(conversation.messages[1]).toMatchObject({ role: 'assistant', content: expect.stringMatching(/^..$/) });
      input.write('/exit\r');
      await done;
    });

    it('leaves at the second Ctrl-C, and not before a line that was typed', async () => {
      const { input, seen, done } = chat({ isTerminal: true });
      input.write('half a line\u0003');
      await vi.waitFor(() => expect(seen.stdout).toContain('Ctrl-C again or Ctrl-D leaves'));
      input.write('/stats\r');
      await vi.waitFor(() => expect(seen.stdout).toContain('is shown.'));
      input.write('\u0003');
      input.write('\u0003');
      await done;
    });

    it('ends when the process is told to', async () => {
      const { input, done, end, engine } = chat({ isTerminal: true, beforeStep: never });
      input.write('hello\r');
      await vi.waitFor(() => expect(engine.requests).toHaveLength(1));
      end.abort();
      await done;
    });
  });
});
