import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text as readText } from 'node:stream/consumers';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { buildCommand, killCommands, main, run, serve, smallPool, start } from '../support/cli-process.ts';
import { itInLongForm } from '../support/long-form.ts';
import { needs } from '../support/needs.ts';
import { runHere } from '../support/run-here.ts';
import { freePort } from '../support/s3-server.ts';

beforeAll(buildCommand);
afterEach(killCommands);

const folder = mkdtempSync(join(tmpdir(), 'kvasir-cli-'));
afterAll(() => rmSync(folder, { recursive: true }));

const isHealthy = (port: number): Promise<boolean> =>
  fetch(`http://127.0.0.1:${port}/health`).then(
    ({ ok }) => ok,
    () => false,
  );

const generate = (args: readonly string[], input = '') => run(['generate', ...smallPool, ...args], input);

describe('kvasir generate', () => {
  const greedy = ['--max-tokens', '24', '--temperature', '0'];

  it('prints one JSON line and nothing else', async () => {
    const { code, stdout } = await generate(['--prompt', '-', ...greedy, '--json'], 'Once upon a time\n');
    expect(code).toBe(0);
    expect(stdout.endsWith('\n')).toBe(true);
    expect(stdout.trimEnd()).not.toContain('\n');
    const line = JSON.parse(stdout);
    expect(Object.keys(line)).toEqual(['text', 'token_ids', 'finish_reason', 'usage']);
    expect(line.token_ids).toHaveLength(24);
    expect(line.finish_reason).toBe('length');
    expect(line.usage).toMatchObject({ prompt_tokens: 4, completion_tokens: 24, total_tokens: 28 });
  });

  it('prints the same text as a stream, for a prompt from an argument, a file or standard input', async () => {
    const prompt = 'Once upon a time';
    const { text } = JSON.parse(
      (await runHere(['generate', ...smallPool, '--prompt', prompt, ...greedy, '--json'])).stdout,
    );
    const file = join(folder, 'prompt.txt');
    writeFileSync(file, `${prompt}\n`);
    expect((await runHere(['generate', ...smallPool, '--prompt', prompt, ...greedy])).stdout).toBe(`${text}\n`);
    const fromFile = await runHere(['generate', ...smallPool, '--prompt', `@${file}`, ...greedy]);
    expect(fromFile.stdout).toBe(`${text}\n`);
    expect((await runHere(['generate', ...smallPool, '--prompt', '-', ...greedy], `${prompt}\n`)).stdout).toBe(
      `${text}\n`,
    );
  });

  it('applies the chat template, and prints logprobs', async () => {
    const args = [
      '--prompt',
      'Tell me a story.',
      '--chat',
      '--system',
      'Be brief.',
      '--logprobs',
      '2',
      ...greedy,
      '--json',
    ];
    const line = JSON.parse((await runHere(['generate', ...smallPool, ...args])).stdout);
    expect(line.usage.prompt_tokens).toBeGreaterThan(10);
    expect(line.logprobs).toHaveLength(line.token_ids.length);
    for (const [i, { token_id, logprob, top_logprobs }] of line.logprobs.entries()) {
      expect(token_id).toBe(line.token_ids[i]);
      expect(top_logprobs[0]).toEqual({ token_id, logprob });
    }
  });

  it.each([
    ['a missing prompt', [], 2, /'--prompt <text>' is required/],
    ['an unknown option', ['--promt', 'x'], 2, /unknown option '--promt'\n\(Did you mean --prompt\?\)/],
    ['a value that is not a number', ['--prompt', 'x', '--max-tokens', 'many'], 2, /--max-tokens.*whole number/],
    ['a value out of range', ['--prompt', 'x', '--top-p', '2'], 2, /error: --top-p must be .* got 2/],
    ['--system without --chat', ['--prompt', 'x', '--system', 'y'], 2, /'--system' needs '--chat'/],
    ['an empty prompt', ['--prompt', ''], 1, /^error: The prompt is empty/m],
    [
      'a prompt that does not fit',
      ['--prompt', 'x', '--max-tokens', '100000'],
      1,
      /^error: This model's maximum context length is/m,
    ],
    ['a model file that does not exist', ['--prompt', 'x', '--model', 'no.gguf'], 1, /^error: .*no\.gguf/m],
    ['a file that is not a model', ['--prompt', 'x', '--model', 'package.json'], 1, /^error: .*package\.json/m],
    [
      'a prompt file that does not exist',
      ['--prompt', '@no.txt'],
      1,
      /^error: Cannot read the prompt no\.txt: there is no such file\. Check the path and its permissions\.$/m,
    ],
  ] as const)('exits with an error that names the cause: %s', async (_, args, expectedCode, message) => {
    const { code, stdout, stderr } = await runHere(['generate', ...smallPool, ...args]);
    expect(stderr).toMatch(message);
    expect(stderr).not.toMatch(/^ {4}at /m);
    expect(stdout).toBe('');
    expect(code).toBe(expectedCode);
  });

  it('rejects a prompt that is not UTF-8', async () => {
    const file = join(folder, 'latin1.txt');
    writeFileSync(file, Buffer.from([0x63, 0x61, 0x66, 0xe9]));
    const { code, stderr } = await runHere(['generate', ...smallPool, '--prompt', `@${file}`]);
    expect(code).toBe(1);
    expect(stderr).toContain('is not valid UTF-8');
  });

  it('ends at Ctrl-C', async () => {
    const child = start(['generate', ...smallPool, '--prompt', 'Once', '--max-tokens', '8000', '--ignore-eos']);
    await once(child.stdout, 'data');
    child.kill('SIGINT');
    expect(await once(child, 'exit')).toEqual([130, null]);
  });

  it('ends when the reader closes the pipe', async () => {
    const child = start(['generate', ...smallPool, '--prompt', 'Once', '--max-tokens', '8000', '--ignore-eos']);
    await once(child.stdout, 'data');
    child.stdout.destroy();
    expect(await once(child, 'exit')).toEqual([0, null]);
  });
});

describe('kvasir serve', () => {
  it('logs its address and a request', async () => {
    const { logged, post } = await serve();
    const answer = await post('/v1/chat/completions', { messages: [{ role: 'user', content: 'Hi' }], max_tokens: 5 });
    expect(answer.status).toBe(200);
    await logged(/info {2}request id=req-\S+ method=POST path=\/v1\/chat\/completions status=200 promptTokens=\d+/);
  });

  it('exits with an error if its port is in use', async () => {
    const other = createServer();
    await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
    const { port } = other.address() as { port: number };
    const { code, stderr } = await runHere(['serve', '--port', String(port)]);
    other.close();
    expect(code).toBe(1);
    expect(stderr).toMatch(new RegExp(`^error: Port ${port} on 127\\.0\\.0\\.1 is in use\\..*--port`, 'm'));
  });

  it('reads its API key from the environment, and logs JSON lines with --log-format json', async () => {
    const flags = ['--log-format', 'json', '--served-model-name', 'mine'];
    const { logged, complete, stop, origin } = await serve(flags, { KVASIR_API_KEY: 'sesame' });
    const answer = await complete({ max_tokens: 1, model: 'mine' }, { authorization: 'Bearer sesame' });
    expect(JSON.parse(await answer.text()).model).toBe('mine');
    const line = JSON.parse((await logged(/^\{.*"msg":"request"\}$/m))[0]);
    expect(line).toMatchObject({ status: 200, outputTokens: 1, finish: 'length' });
    expect((await complete({ max_tokens: 1 })).status).toBe(401);
    const lines = (await stop()).trimEnd().split('\n');
    const logs = lines.map((text) => JSON.parse(text) as { readonly msg: string });
    expect(logs.at(-1)!.msg).toBe('shutting down: no request is running');
    expect(logs.find(({ msg }) => msg === 'serving')).toMatchObject({ level: 30, model: 'mine', address: origin });
  });

  itInLongForm('prints no banner and no other information with --log-level warn', async () => {
    const port = await freePort();
    const child = start(['serve', '--port', `${port}`, ...smallPool, '--log-level', 'warn']);
    const stderr = readText(child.stderr);
    const exited = once(child, 'exit');
    await expect.poll(() => isHealthy(port)).toBe(true);
    child.kill('SIGTERM');
    await exited;
    expect(await stderr).not.toMatch(/address|info|shutting down/);
  });

  // The default form has each of these in `src/server`.
  itInLongForm(
    'answers to several names and keys, to web pages of an allowed origin, and below a root path',
    async () => {
      const names = ['--served-model-name', 'mine', '--served-model-name', 'other'];
      const keys = ['--api-key', 'first', '--api-key', 'second'];
      const more = ['--root-path', '/llm', '--allowed-origins', 'https://example.com', '--max-model-len', '0.2k'];
      const { origin } = await serve([...names, ...keys, ...more]);
      const get = (path: string, headers: Record<string, string>) => fetch(`${origin}${path}`, { headers });
      expect((await get('/v1/models', { authorization: 'Bearer third' })).status).toBe(401);
      for (const [path, key] of [
        ['/v1/models', 'first'],
        ['/llm/v1/models', 'second'],
      ] as const) {
        const answer = await get(path, { authorization: `Bearer ${key}`, origin: 'https://example.com' });
        const { data } = (await answer.json()) as { data: { id: string; max_model_len: number }[] };
        expect(data.map(({ id, max_model_len: length }) => [id, length])).toEqual([
          ['mine', 200],
          ['other', 200],
        ]);
        expect(answer.headers.get('access-control-allow-origin')).toBe('https://example.com');
      }
    },
  );
});

describe('kvasir', () => {
  it('shows its help and its version', async () => {
    expect((await run(['--help'])).stdout).toMatch(/serve[\s\S]*generate/);
    expect((await runHere(['serve', '--help'])).stdout).toMatch(/--kv-cache-memory[\s\S]*Examples:/);
    expect((await run(['--version'])).stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
  });

  it('suggests the similar command', async () => {
    const { code, stderr } = await run(['serv']);
    expect(code).toBe(2);
    expect(stderr).toContain('Did you mean serve?');
    expect((await run([])).code).toBe(2);
  });

  it('fails if its output cannot be written', needs(existsSync('/dev/full'), 'no /dev/full'), () => {
    const full = openSync('/dev/full', 'w');
    const { status, stderr } = spawnSync(process.execPath, [main, 'size', '--json'], {
      stdio: ['ignore', full, 'pipe'],
      encoding: 'utf8',
    });
    closeSync(full);
    expect([status, stderr]).toEqual([1, expect.stringMatching(/^error: The output cannot be written: ENOSPC/)]);
  });
});
