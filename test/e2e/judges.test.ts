/**
 * Programs of others that judge the HTTP API: llm-comply by the schemas of OpenAI, Open Responses and Anthropic, schemathesis by
 * `/openapi.json`, and the tests of llama.cpp's server.
 */
import { mkdtempSync, readdirSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createEngine } from '../../src/compose.ts';
import type { AsyncEngine } from '../../src/engine/contract.ts';
import { Server } from '../../src/server/server.ts';
import { chatTemplateFile, hasChatTemplates } from '../support/chat-templates.ts';
import { hasJudges, judgesFolder, noJudges, runJudge } from '../support/judges.ts';
import { LetterEngine } from '../support/letter-engine.ts';
import {
  entryFor,
  type LlamaServerRun,
  notRun,
  runLlamaServerTests,
  testsNotPassing,
} from '../support/llama-server-tests.ts';
import { needs } from '../support/needs.ts';
import { smallDemo } from '../support/small-demo.ts';

const folder = mkdtempSync(join(tmpdir(), 'kvasir-judges-'));

describe('llm-comply', needs(hasJudges, noJudges), () => {
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

describe('schemathesis', needs(hasJudges, noJudges), () => {
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

describe(
  "llama.cpp's tests of its server",
  needs(hasJudges && hasChatTemplates, `${noJudges} and .ci/install-chat-templates`),
  () => {
    const [served, ...aliases] = [
      'tinyllama-2',
      'test',
      'test-model',
      'gpt-3.5-turbo-instruct',
      'gpt-3.5-turbo',
      'gpt-4.1',
    ];
    const names = [...aliases, 'text-embedding-3-small'];
    const byGrammar = 'response_format or json_schema or grammar or logit_bias';
    /** An engine whose texts never end early, for tests that need no model. */
    const ofLetters: readonly LlamaServerRun[] = [
      { file: 'test_chat_completion', only: `not (${byGrammar})` },
      { file: 'test_compat_oai_responses' },
      { file: 'test_compat_anthropic', only: 'not thinking_history' },
      { file: 'test_infill' },
    ];
    const ofDemo: readonly LlamaServerRun[] = [
      { file: 'test_chat_completion', only: `(${byGrammar}) and not response_format1-` },
      { file: 'test_tokenize' },
      { file: 'test_embedding' },
      { file: 'test_rerank' },
    ];
    const ofTemplates: Readonly<Record<string, readonly LlamaServerRun[]>> = {
      'meta-llama-Llama-3.3-70B-Instruct': [
        { file: 'test_template', only: '3.3-70B' },
        { file: 'test_tool_call', only: 'without_tool_call_fast' },
      ],
      'Qwen-Qwen3-0.6B': [
        { file: 'test_template', only: 'Qwen3-0.6B and not off' },
        { file: 'test_compat_anthropic', only: 'thinking_history' },
      ],
    };
    /** Names of listed tests that ran. */
    const seen = new Set<string>();

    async function expectOutcomes(engine: AsyncEngine, runs: readonly LlamaServerRun[]): Promise<void> {
      const server = new Server(engine, { version: '1', logLevel: 'silent' });
      try {
        const outcomes = await runLlamaServerTests(await server.listen(0, '127.0.0.1'), runs, folder);
        const passed = [...outcomes].filter(([, failure]) => failure === undefined).map(([name]) => name);
        for (const name of outcomes.keys()) seen.add(entryFor(name) ?? '');
        const unexpected = [...outcomes].filter(
          ([name, failure]) => failure !== undefined && entryFor(name) === undefined,
        );
        expect([unexpected, passed.filter((name) => entryFor(name) !== undefined)]).toEqual([[], []]);
        expect(outcomes.size).toBeGreaterThan(0);
      } finally {
        await server.app.close();
      }
    }

    it('pass on an engine of letters, but for those with a reason', async () => {
      const fimTokens = { prefix: 1, suffix: 2, middle: 3 };
      const engine = new LetterEngine({ aliases: [served!, ...names], maxModelLen: 1000, fimTokens });
      await expectOutcomes(engine, ofLetters);
    });

    it('pass on a model, but for those with a reason', async () => {
      const servedModelName = [served!, ...names];
      await using engine = await createEngine({ ...smallDemo, maxModelLen: 2048, pooling: 'mean', servedModelName });
      await expectOutcomes(engine, ofDemo);
    });

    it.each(Object.entries(ofTemplates))(
      'pass with the template %s, but for those with a reason',
      async (name, runs) => {
        const chatTemplate = readFileSync(chatTemplateFile(name), 'utf8');
        await using engine = await createEngine({
          ...smallDemo,
          maxModelLen: 2048,
          chatTemplate,
          servedModelName: 'test',
        });
        await expectOutcomes(engine, runs);
      },
    );

    it('are all run, or have a reason', () => {
      const run = [...ofLetters, ...ofDemo, ...Object.values(ofTemplates).flat()].map(({ file }) => file);
      const files = readdirSync(join(judgesFolder, 'llama-server-tests', 'unit')).filter((name) =>
        name.startsWith('test_'),
      );
      const known = new Set([...run, ...Object.keys(notRun)]);
      expect(files.map((name) => name.replace('.py', '')).filter((name) => !known.has(name))).toEqual([]);
      expect(Object.keys(testsNotPassing).filter((start) => !seen.has(start))).toEqual([]);
    });
  },
);
