/** Programs of others that judge the HTTP API: llm-comply by the schemas of OpenAI, Open Responses and Anthropic, schemathesis by `/openapi.json`. */
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { createEngine } from '../../src/compose.ts';
import type { AsyncEngine } from '../../src/engine/contract.ts';
import { Server } from '../../src/server/server.ts';
import { hasJudges, noJudges, runJudge } from '../support/judges.ts';
import { LetterEngine } from '../support/letter-engine.ts';
import { describeInLongForm } from '../support/long-form.ts';
import { testsNeed } from '../support/needs.ts';
import { smallDemo } from '../support/small-demo.ts';

const folder = mkdtempSync(join(tmpdir(), 'kvasir-judges-'));

describeInLongForm('llm-comply', () => {
  testsNeed(hasJudges, noJudges);
  const chatTemplate = '{% if tools %}<tool_call>{% endif %}{{ tool_calls }}';
  const engine = new LetterEngine({ chatTemplate, maxModelLen: 5000 });
  const call = '<tool_call>\n{"name": "get_weather", "arguments": {"location": "San Francisco"}}\n</tool_call>';
  const { renderChat } = engine;
  engine.renderChat = (messages, options) => {
    engine.answer = options?.variables?.tools === undefined ? 'Hello, Alice.' : call;
    return renderChat.call(engine, messages, options);
  };
  const server = new Server(engine, { version: '1', logLevel: 'silent' });
  let origin = '';
  beforeAll(async () => {
    origin = `http://127.0.0.1:${await server.listen(0, '127.0.0.1')}/v1`;
  });
  afterAll(() => server.app.close());

  /** docs/compatibility.md has the reasons. */
  it.each([
    ['openai-chat', ['Error Handling', 'Image Input']],
    ['open-responses', ['Error Handling', 'Image Input']],
    ['anthropic', ['Image Input']],
  ])('finds nothing wrong in %s but what the server does not do', async (format, expected) => {
    const args = ['-u', origin, '-k', 'none', '-m', 'letters', '--format', format, '--json'];
    const { output } = await runJudge('llm-comply', args, folder);
    const { results } = JSON.parse(output) as { results: { name: string; status: string; errors: string[] }[] };
    const failed = results.filter(({ status }) => status === 'failed');
    expect([
      failed.map(({ name }) => name).toSorted((a, b) => (a < b ? -1 : 1)),
      failed.length > expected.length ? failed : [],
    ]).toEqual([expected, []]);
    expect(results.filter(({ status }) => status === 'passed').length).toBeGreaterThan(5);
  });
});

describeInLongForm('schemathesis', () => {
  testsNeed(hasJudges, noJudges);
  let engine: AsyncEngine;
  let server: Server;
  beforeAll(async () => {
    engine = await createEngine({ ...smallDemo, maxModelLen: 128, pooling: 'mean' });
    server = new Server(engine, { version: '1', logLevel: 'silent' });
  });
  afterAll(async () => {
    await server.app.close();
    await engine.close();
  });

  it('finds no request that fails inside, and no answer that the description does not have', async () => {
    const origin = `http://127.0.0.1:${await server.listen(0, '127.0.0.1')}`;
    const checks = ['not_a_server_error', 'status_code', 'content_type', 'response_schema'];
    const names = checks.map((name) => (name === 'not_a_server_error' ? name : `${name}_conformance`)).join(',');
    // The stream of the cache has no end. The seed is in the output.
    const generation = ['--max-examples', '4', '--generation-database', 'none', '--phases', 'examples,fuzzing'];
    const args = ['run', `${origin}/openapi.json`, '--exclude-path', '/cache/events', '--checks', names, ...generation];
    const { exitCode, output } = await runJudge('schemathesis', [...args, '--no-color', '--warnings', 'off'], folder);
    expect([exitCode, exitCode === 0 ? '' : output]).toEqual([0, '']);
    expect(output).toMatch(/Tested: \d\d/);
  });
});
