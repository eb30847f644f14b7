import { cpSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { fullAttention, neededTokens } from '../../src/cli/proof/needed-tokens.ts';
import { buildCommand, killCommands, mainInModules, run, serve, smallPool } from '../support/cli-process.ts';
import { inLongForm, isLongForm, itInLongForm } from '../support/long-form.ts';
import { type PlantedBug, plantedBugs } from '../support/planted-bugs.ts';
import { environmentWith } from '../support/preload.ts';
import { childrenOf } from '../support/processes.ts';
import { runHere } from '../support/run-here.ts';

/** Servers and commands in separate processes that share only a directory. */
beforeAll(buildCommand);
afterEach(killCommands);

const folder = mkdtempSync(join(tmpdir(), 'kvasir-kv-'));
afterAll(() => rmSync(folder, { recursive: true }));

type Server = Awaited<ReturnType<typeof serve>>;
type Rule = Readonly<Record<string, unknown>>;

const BLOCK = 16;
const field = (name: string, value: string): string[] => [`--kv-transfer-config.${name}`, value];

/** Few threads, because starting a thread takes longer than reading a block. */
const fewThreads = { loads_at_once: 2, saves_at_once: 1 };

/** Flags for a connector on a directory, as in vLLM. The lookup timeout is long, because the machine may be busy. */
function shared(path: string, role: string, extra: Readonly<Record<string, unknown>> = {}): string[] {
  return [
    ...field('kv_connector', 'SharedStorageConnector'),
    ...field('kv_role', role),
    ...field(
      'kv_connector_extra_config',
      JSON.stringify({ shared_storage_path: path, lookup_timeout_seconds: 60, ...fewThreads, ...extra }),
    ),
  ];
}

/** A copy of a store, in which a test may damage blocks. */
function copyOf(path: string, name: string): string {
  const copy = join(folder, name.replace(/\W+/g, '-'));
  cpSync(path, copy, { recursive: true });
  return copy;
}

const story = 'a little fox who lived in the garden and wanted to find the red ball before the evening. '.repeat(8);

/** Prompts without a shared prefix, so that the pool has no KV for them; each with other parameters. */
const questions = [
  { prompt: `Once upon a time there was ${story}`, temperature: 0 },
  { prompt: `The story begins with ${story}`, temperature: 0, stream: true },
  { prompt: `In the morning came ${story}`, temperature: 0.8, seed: 7 },
  { prompt: `Every day, ${story}`, temperature: 0.8, seed: 8, stream: true },
] as const;

interface Answer {
  readonly text: string;
  readonly tokenIds: readonly number[];
  readonly promptTokens: number;
  readonly details: Readonly<Record<string, number | undefined>>;
  /** The connector's answer: `computed_tokens` and others. */
  readonly transfer: Readonly<Record<string, number | undefined>>;
}

async function ask({ complete }: Server, question: object): Promise<Answer> {
  const isStream = 'stream' in question;
  const response = await complete(requestOf(question));
  const body = await response.text();
  expect(response.status, body).toBe(200);
  return answerOf(body, isStream);
}

const requestOf = (question: object): object => ({
  ...question,
  max_tokens: 40,
  ignore_eos: true,
  return_token_ids: true,
  ...('stream' in question ? { stream_options: { include_usage: true } } : {}),
});

function answerOf(body: string, isStream: boolean): Answer {
  const parts = isStream
    ? body
        .split('\n\n')
        .filter((event) => event.startsWith('data: {'))
        .map((event) => JSON.parse(event.slice(6)))
    : [JSON.parse(body)];
  const choices = parts.flatMap((part) => part.choices);
  const { usage } = parts.at(-1);
  return {
    text: choices.map(({ text }) => text).join(''),
    tokenIds: choices.flatMap(({ token_ids }) => token_ids),
    promptTokens: usage.prompt_tokens,
    details: usage.prompt_tokens_details,
    transfer: parts.find((part) => 'kv_transfer_params' in part)?.kv_transfer_params ?? {},
  };
}

/** The minimum of computed tokens for a prompt with all blocks stored but these, and 40 output tokens. */
function needed(promptTokens: number, missing: readonly number[] | 'all'): number {
  const keys = Array.from({ length: Math.floor(promptTokens / BLOCK) }, (_, block) => `0-${block}`);
  const available = new Set(keys.filter((_, block) => missing !== 'all' && !missing.includes(block)));
  const request = { tokenCount: promptTokens, keys: [keys], outputTokens: 40, available };
  return neededTokens([request], fullAttention(BLOCK));
}

async function askAll(server: Server): Promise<Answer[]> {
  const answers: Answer[] = [];
  for (const question of questions) answers.push(await ask(server, question));
  return answers;
}

const outputsOf = (answers: readonly Answer[]) => answers.map(({ text, tokenIds }) => ({ text, tokenIds }));

describe('servers that share a directory', () => {
  const store = join(folder, 'store');
  let expected: Answer[] = [];

  beforeAll(async () => {
    const server = await serve(shared(store, 'kv_producer'));
    expected = await askAll(server);
    const log = await server.stop();
    expect(log).toContain(
      `connector="SharedStorageConnector (kv_producer), in ${store}; load failure policy: recompute`,
    );
    expect(log).toMatch(/Z info {2}KV outside: \d\d+ blocks stored, 0 loaded for 0 tokens, 0 failed$/m);
    for (const { tokenIds, details } of expected) {
      expect(tokenIds).toHaveLength(40);
      expect(details).toEqual({ cached_tokens: 0 });
    }
  });

  it('load the blocks that another server has computed, and report them', async () => {
    const server = await serve([...shared(store, 'kv_consumer'), '--log-format', 'json']);
    const answers = await askAll(server);
    expect(outputsOf(answers)).toEqual(outputsOf(expected));
    for (const { promptTokens, details } of answers) {
      const fullBlocks = Math.floor((promptTokens - 1) / BLOCK) * BLOCK;
      const loaded = { 'shared-storage': fullBlocks };
      expect(details).toEqual({ cached_tokens: fullBlocks, external_tokens: fullBlocks, loaded_tokens: loaded });
    }
    const log = await server.stop();
    const { externalTokens } = JSON.parse(/^\{.*"msg":"request"\}$/m.exec(log)![0]);
    expect(externalTokens).toBe(answers[0]!.details.external_tokens);
    expect(log).toMatch(/"msg":"KV outside: 0 blocks stored, \d\d+ loaded for \d+ tokens, 0 failed"/);
  });

  const faults: [string, Rule, boolean, number][] = [
    ['flipped bits and async loads', { fault: 'bitFlip', blocks: [0, 3] }, true, 2],
  ];
  // `src/connector/connector.suite.ts` has all faults in both modes, and `test/dead-storage.test.ts` a store that hangs.
  const furtherFaults: typeof faults = [
    ['a store that hangs', { fault: 'hung', blocks: [1], requests: [0, 2] }, true, 1],
    ['headers of another model', { fault: 'wrongModel' }, false, Infinity],
    ['flipped bits and sync loads', { fault: 'bitFlip', blocks: [0, 3] }, false, 2],
    ['a missing block', { fault: 'missing', blocks: [2] }, true, 1],
    ['a truncated file', { fault: 'truncated', blocks: [1] }, true, 1],
  ];
  it.each([...faults, ...(isLongForm ? furtherFaults : [])])(
    'generate the same text with %s',
    async (name, rule, isAsync, failed) => {
      const timeout = rule.fault === 'hung' ? {} : { load_timeout_seconds: 60 };
      const extra = { async_load: isAsync, ...timeout, fault_injection: { rules: [rule] } };
      const server = await serve([...shared(copyOf(store, name), 'kv_both', extra), '--log-format', 'json']);
      const answers = await askAll(server);
      expect(outputsOf(answers)).toEqual(outputsOf(expected));
      for (const [i, { promptTokens, details, transfer }] of answers.entries()) {
        const fullBlocks = Math.floor((promptTokens - 1) / BLOCK) * BLOCK;
        const isHit = !('requests' in rule) || (rule.requests as number[]).includes(i);
        const blocks = isHit ? Math.min(failed, fullBlocks / BLOCK) : 0;
        const failures = blocks === 0 ? {} : { recomputed_tokens: blocks * BLOCK, failed_loads: blocks };
        const cached = fullBlocks - blocks * BLOCK;
        expect(details).toEqual({
          cached_tokens: cached,
          external_tokens: fullBlocks,
          ...(cached === 0 ? {} : { loaded_tokens: { 'shared-storage': cached } }),
          ...failures,
        });
        const failedBlocks = isHit ? ('blocks' in rule ? (rule.blocks as readonly number[]) : 'all') : [];
        expect(transfer.computed_tokens, 'I3').toBe(needed(promptTokens, failedBlocks));
      }
      const log = await server.stop();
      expect(log).toMatch(/"msg":"KV outside: [^"]* [1-9]\d* failed \(\w+ \d+(, \w+ \d+)*\)"/);
      const warnings = [...log.matchAll(/^\{"level":40.*\}$/gm)].map(([line]) => JSON.parse(line));
      const isInjected = ({ msg }: { readonly msg: string }): boolean => msg.startsWith('Injected fault ');
      const failedLoads = answers.reduce((sum, { details }) => sum + (details.failed_loads ?? 0), 0);
      // A load that is retried may meet the fault again.
      expect(warnings.filter(isInjected).length).toBeGreaterThanOrEqual(failedLoads);
      const events = warnings.filter((warning) => !isInjected(warning));
      expect(events).toHaveLength('requests' in rule ? 2 : questions.length);
      for (const { msg, requests, tokens } of events) {
        expect(requests).toBe(1);
        expect(msg).toBe(`Recovered from KV load failure: 1 request(s) rescheduled (${tokens} tokens affected).`);
      }
    },
  );

  // The default form has these bugs in the demo (`demo-planted-bugs.test.ts`) and in `recovery-schedules.test.ts`.
  it.each(inLongForm<readonly PlantedBug[]>(plantedBugs, []))(
    'report the computed tokens when they recompute more than necessary (%s)',
    async (bug) => {
      const rules = [{ fault: 'bitFlip', blocks: [0, 3] }];
      const extra = { load_timeout_seconds: 60, fault_injection: { rules } };
      const args = shared(copyOf(store, bug), 'kv_consumer', extra);
      const answers = await askAll(await serve(args, environmentWith(bug, folder), { main: mainInModules }));
      expect(outputsOf(answers)).toEqual(outputsOf(expected));
      for (const { promptTokens, details, transfer } of answers) {
        expect(details).toMatchObject({ failed_loads: 2 });
        expect(details.recomputed_tokens).toBeGreaterThan(2 * BLOCK);
        expect(transfer.computed_tokens).toBeGreaterThan(needed(promptTokens, [0, 3]));
      }
    },
  );

  // The default form has the policy in `vllm-hybrid-model.test.ts` and in `worker-chaos.test.ts`.
  it.each(inLongForm([true, false], []))(
    'answer with an error when a load fails with the policy fail, and continue (async_load %s)',
    async (isAsync) => {
      // The first two requests load a corrupt block, which is then neither in the store nor in the pool.
      const rules = [{ fault: 'bitFlip', blocks: [1], requests: [0, 1] }];
      const path = copyOf(store, `policy ${isAsync}`);
      const args = shared(path, 'kv_both', { async_load: isAsync, fault_injection: { rules } });
      const server = await serve([...args, ...field('kv_load_failure_policy', 'fail')]);
      for (const question of questions.slice(0, 2)) {
        const response = await server.complete({ ...question, max_tokens: 40 });
        expect(response.status).toBe(500);
        expect(JSON.parse(await response.text())).toEqual({
          error: {
            message: expect.stringContaining('kv_load_failure_policy is fail'),
            type: 'server_error',
            param: null,
            code: 'KVASIR_KV_LOAD_FAILED',
          },
        });
      }
      expect((await fetch(`${server.origin}/health`)).status).toBe(200);
      const answers = await askAll(server);
      expect(outputsOf(answers)).toEqual(outputsOf(expected));
      for (const { details } of answers) expect(details).not.toHaveProperty('failed_loads');
      const log = await server.stop();
      expect(log).toContain('load failure policy: fail');
      expect(log).toMatch(
        / error Failing 1 request\(s\) due to KV load failure \(failure_policy=fail, \d+ tokens affected\)\. Request IDs: cmpl-\S+ requests=1 tokens=\d+$/m,
      );
    },
  );

  // The default form has ranks that die while they load in `worker-chaos.test.ts`, and a server with ranks and tiers in `offloading.test.ts`.
  itInLongForm('generate the same text with two ranks in worker processes, also when a rank dies', async () => {
    const path = join(folder, 'ranks');
    const ranks = ['--pipeline-parallel-size', '2'];
    const first = await serve([...shared(path, 'kv_producer'), ...ranks]);
    expect(outputsOf(await askAll(first))).toEqual(outputsOf(expected));
    expect(await first.stop()).toContain(' ranks="2, each with its part of the layers"');
    const rules = [{ fault: 'bitFlip', blocks: [2], requests: [1] }];
    const second = await serve([...shared(path, 'kv_consumer', { fault_injection: { rules } }), ...ranks]);
    const answers = await askAll(second);
    expect(outputsOf(answers)).toEqual(outputsOf(expected));
    for (const [i, { details }] of answers.entries()) {
      expect(details.external_tokens).toBeGreaterThan(64);
      expect(details.recomputed_tokens ?? 0).toBe(i === 1 ? BLOCK : 0);
    }
    const reader = (await second.complete(requestOf(questions[3]))).body!.getReader();
    let body = Buffer.from((await reader.read()).value!).toString();
    process.kill(childrenOf(second.child.pid!)[1]!, 'SIGKILL');
    for (let next = await reader.read(); !next.done; next = await reader.read()) body += Buffer.from(next.value);
    expect(outputsOf([answerOf(body, true)])).toEqual(outputsOf(expected.slice(3)));
    expect(await second.stop()).toMatch(
      / warn {2}The worker process of rank 1 of 2 died of SIGKILL\. It is started again.* processId=\d+ /,
    );
  });
});

// The default form has this with two servers and Redis in `disaggregated.test.ts`.
itInLongForm('a router can send the prefill to one server and the decode to another, as with vLLM', async () => {
  const path = join(folder, 'router');
  const [question] = questions;
  const prefill = await serve([...shared(path, 'kv_producer'), ...field('engine_id', 'p1')]);
  const kv_transfer_params = { do_remote_decode: true };
  const first = await prefill.complete({ ...question, max_tokens: 1, kv_transfer_params });
  const { kv_transfer_params: answer, usage } = JSON.parse(await first.text());
  const stored = Math.floor(usage.prompt_tokens / BLOCK);
  expect(answer).toEqual({
    do_remote_decode: false,
    do_remote_prefill: true,
    remote_engine_id: 'p1',
    remote_request_id: expect.any(String),
    remote_block_ids: [Array.from({ length: stored }, (_, block) => block)],
    remote_kv_identity: expect.stringMatching(/^kv-[0-9a-f]{32}$/),
    stored_blocks: stored,
    external_tokens: 0,
    computed_tokens: usage.prompt_tokens,
    recomputed_tokens: 0,
    failed_loads: 0,
  });
  await prefill.stop();
  const decode = await serve(shared(path, 'kv_consumer'));
  const { details } = await ask(decode, { ...question, kv_transfer_params: answer });
  expect(details.external_tokens).toBe(Math.min(stored * BLOCK, usage.prompt_tokens - 1));
});

// The default form has this in `src/engine/transfer-params.test.ts` and in `src/server/routes.test.ts`.
itInLongForm('a connector receives kv_transfer_params, and its answer reaches the client', async () => {
  const module = join(folder, 'echo.mjs');
  const example = pathToFileURL(join(process.cwd(), 'examples', 'compressed-kv-connector.js')).href;
  writeFileSync(
    module,
    `import { CompressedConnector } from '${example}';
     export class EchoConnector extends CompressedConnector {
       async openScheduler(context) {
         const side = await super.openScheduler(context);
         const finished = side.requestFinished.bind(side);
         side.requestFinished = (request, valid) => {
           finished(request, valid);
           const { kvTransferParams } = request;
           return kvTransferParams === undefined ? {} : { kvTransferParams: { received: kvTransferParams } };
         };
         return side;
       }
     }`,
  );
  const server = await serve([
    ...field('kv_connector', 'EchoConnector'),
    ...field('kv_role', 'kv_both'),
    ...field('kv_connector_module_path', module),
    ...field('kv_connector_extra_config.folder', join(folder, 'echo')),
  ]);
  const sent = { anything: true, blocks: [1, 2] };
  const chat = { messages: [{ role: 'user', content: 'Tell me a story.' }], max_tokens: 3, kv_transfer_params: sent };
  const completion = await server.complete({ max_tokens: 3, kv_transfer_params: sent });
  expect(JSON.parse(await completion.text()).kv_transfer_params).toMatchObject({ received: sent, external_tokens: 0 });
  const answer = await server.post('/v1/chat/completions', chat);
  expect(JSON.parse(await answer.text()).kv_transfer_params).toMatchObject({ received: sent });
  const stream = await (await server.post('/v1/chat/completions', { ...chat, stream: true })).text();
  const chunks = stream.split('\n\n').filter((event) => event.startsWith('data: {'));
  const last = JSON.parse(chunks.at(-1)!.slice(6));
  expect(last).toMatchObject({
    kv_transfer_params: { received: sent },
    choices: [{ finish_reason: expect.any(String) }],
  });
  expect(chunks.slice(0, -1).join('')).not.toContain('kv_transfer_params');
  expect(JSON.parse(await (await server.complete({ max_tokens: 3 })).text())).not.toHaveProperty('kv_transfer_params');
  expect(await server.stop()).toContain('connector="EchoConnector (kv_both); load failure policy: recompute');
});

describe('kvasir generate', () => {
  const greedy = '--temperature 0 --max-tokens 24 --json'.split(' ');
  const lineOf = (args: readonly string[]) => ['generate', ...smallPool, '--prompt', story, ...greedy, ...args];
  const generate = (...args: string[]) => run(lineOf(args));
  const generateHere = (...args: string[]) => runHere(lineOf(args));

  it('prefills in one process and decodes in another, also when stored blocks are corrupt', async () => {
    const path = join(folder, 'generate');
    const alone = JSON.parse((await generateHere()).stdout);
    // The process ends directly after the prompt, and has saved its KV before.
    const first = await generate(...shared(path, 'kv_producer'), '--max-tokens', '1');
    const second = await generateHere(...shared(path, 'kv_consumer'));
    expect(first.stderr + second.stderr).toBe('');
    expect(JSON.parse(first.stdout).token_ids).toEqual(alone.token_ids.slice(0, 1));
    const loaded = JSON.parse(second.stdout);
    expect(loaded.token_ids).toEqual(alone.token_ids);
    const { prompt_tokens, prompt_tokens_details } = loaded.usage;
    expect(prompt_tokens_details.external_tokens).toBeGreaterThan(prompt_tokens - 1 - BLOCK);
    const faults = { fault_injection: { seed: 1, rules: [{ fault: 'bitFlip', probability: 0.5 }] } };
    const third = await generateHere(...shared(path, 'kv_consumer', faults));
    expect(JSON.parse(third.stdout).token_ids).toEqual(alone.token_ids);
    expect(third.stderr).toMatch(
      /^warning: Recovered from KV load failure: 1 request\(s\) rescheduled \(\d+ tokens affected\)\.$/m,
    );
  });

  it('loads a connector from a module of the user, and generates the same text when its store is corrupt', async () => {
    const path = join(folder, 'compressed');
    const args = [
      ...field('kv_connector', 'CompressedConnector'),
      ...field('kv_role', 'kv_both'),
      ...field('kv_connector_module_path', 'examples/compressed-kv-connector.js'),
      ...field('kv_connector_extra_config.folder', path),
    ];
    const alone = JSON.parse((await generateHere(...args)).stdout);
    expect(alone.usage.prompt_tokens_details).toEqual({ cached_tokens: 0 });
    const loaded = JSON.parse((await generateHere(...args)).stdout);
    expect(loaded.token_ids).toEqual(alone.token_ids);
    const { external_tokens } = loaded.usage.prompt_tokens_details;
    expect(external_tokens).toBeGreaterThan(64);
    const files = readdirSync(path, { recursive: true, encoding: 'utf8' }).filter((name) =>
      /\d-[0-9a-f]{64}$/.test(name),
    );
    expect(files.length * BLOCK).toBeGreaterThanOrEqual(external_tokens);
    for (const [i, file] of files.entries()) writeFileSync(join(path, file), i % 2 === 0 ? 'corrupt' : '');
    const { stdout, stderr } = await generateHere(...args);
    expect(JSON.parse(stdout).token_ids).toEqual(alone.token_ids);
    expect(stderr).toMatch(/^warning: Recovered from KV load failure/m);
    // Recomputed blocks were saved again.
    const again = JSON.parse((await generateHere(...args)).stdout);
    expect(again.token_ids).toEqual(alone.token_ids);
    expect(again.usage.prompt_tokens_details).toEqual(loaded.usage.prompt_tokens_details);
  });
});

describe('kvasir generate and kvasir serve', () => {
  const json = (value: object): string[] => ['--kv-transfer-config', JSON.stringify(value)];
  const base = { kv_connector: 'SharedStorageConnector', kv_role: 'kv_both' };
  const module = join(folder, 'no-connector.mjs');
  const unimportable = join(folder, 'broken.mjs');
  beforeAll(() => {
    writeFileSync(module, 'export class Conector {}\nexport class Half { openWorker() {} }\n');
    writeFileSync(unimportable, 'import "nothing-of-this-name";\n');
  });

  it.each<[string, () => string[], number, RegExp]>([
    ['text that is not JSON', () => ['--kv-transfer-config', 'oops'], 2, /--kv-transfer-config is not JSON/],
    [
      'an unknown connector',
      () => json({ ...base, kv_connector: 'SharedStorageConector' }),
      2,
      /no connector `SharedStorageConector`\. Did you mean `SharedStorageConnector`\?/,
    ],
    [
      'an invalid role',
      () => json({ ...base, kv_role: 'both' }),
      2,
      /`kv_role` must be one of kv_producer.*got "both"/,
    ],
    ['a missing directory', () => json(base), 2, /shared_storage_path` must be a directory, got nothing/],
    [
      'an invalid setting',
      () => shared(folder, 'kv_both', { loads_at_once: 0 }),
      2,
      /loads_at_once` must be an integer from 1 to 1024, got 0/,
    ],
    [
      'a misspelt setting',
      () => shared(folder, 'kv_both', { fsink: true }),
      2,
      /fsink` must be absent.*Did you mean `fsync`/,
    ],
    [
      'a module without the class',
      () => json({ ...base, kv_connector: 'Connector', kv_connector_module_path: module }),
      2,
      /exports no `Connector`\. Did you mean `Conector`\? It exports: Conector, Half/,
    ],
    [
      'a class that is not a connector',
      () => json({ ...base, kv_connector: 'Half', kv_connector_module_path: module }),
      2,
      /`Half` from .* is not a connector: it has no method openScheduler/,
    ],
    [
      'a module that cannot be imported',
      () => json({ ...base, kv_connector_module_path: unimportable }),
      2,
      /broken\.mjs` of kv_connector_module_path cannot be imported: .*nothing-of-this-name/,
    ],
  ])('exit with an error that names the cause: %s', async (_, args, expectedCode, message) => {
    // The model does not exist either: the connector is checked first.
    for (const command of [
      ['generate', '--prompt', 'x', '--model', 'no.gguf'],
      ['serve', 'no.gguf', '--port', '0'],
    ]) {
      const { code, stdout, stderr } = await runHere([...command, ...args()]);
      expect(stderr).toMatch(message);
      // Also `serve`, before it listens.
      expect(stderr).toMatch(/^error: .*\n$/);
      expect(stdout).toBe('');
      expect(code).toBe(expectedCode);
    }
  });

  it('reject more ranks than layers', async () => {
    const ranks = ['--pipeline-parallel-size', '99'];
    const { code, stderr } = await runHere(['generate', ...smallPool, '--prompt', 'x', ...ranks]);
    expect(stderr).toMatch(/^error: --pipeline-parallel-size is 99, and the model has \d+ layers: .*\n$/);
    expect(code).toBe(2);
  });

  it('exit with 2 if the directory of the store cannot be used', async () => {
    const file = join(folder, 'a-file');
    writeFileSync(file, '');
    const { code, stderr } = await runHere(['generate', ...smallPool, '--prompt', 'x', ...shared(file, 'kv_both')]);
    expect(stderr).toMatch(/^error: The KV storage directory `.*a-file` cannot be used/);
    expect(code).toBe(2);
  });

  it('list the settings of connectors in their help', async () => {
    const ofServer = ['serve', 'generate'].map((name) => runHere([name, '--help-all']));
    const helps = [...ofServer, run(['bench', 'latency', '--help-all'])];
    for (const { stdout } of await Promise.all(helps)) {
      expect(stdout).toContain(`--kv-transfer-config '{"kv_connector":"SharedStorageConnector"`);
      expect(stdout).toContain('--kv-transfer-config.kv_connector_extra_config.shared_storage_path /');
      expect(stdout).toMatch(/--pipeline-parallel-size <n>[\s\S]*--distributed-executor-backend <kind>/);
    }
  });
});
