import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { TierReport } from '../../src/connector/offloading/tier-report.ts';
import { buildCommand, killCommands, serve } from '../support/cli-process.ts';
import { isLongForm, itInLongForm } from '../support/long-form.ts';
import { runHere } from '../support/run-here.ts';
import { until } from '../support/until.ts';

/** Servers in separate processes that keep KV below their pool. */
beforeAll(buildCommand);
afterEach(killCommands);

const folder = mkdtempSync(join(tmpdir(), 'kvasir-tiers-'));
afterAll(() => rmSync(folder, { recursive: true }));

type Server = Awaited<ReturnType<typeof serve>>;

/** A pool of 80 blocks of the demo model: far too small for all requests at once. */
const tinyPool = ['--kv-cache-memory', '4MB', '--threads', '1', '--max-num-seqs', '8'];
/** The demo model computes faster than some machines load, so `auto` may load nothing. */
const always = ['--kv-load-policy', 'always'];
const questions = Array.from({ length: 8 }, (_, i) => ({
  prompt: `Story number ${i}. ${`Once upon a time there was a fox number ${i} who had ${i} friends. `.repeat(6)}`,
  max_tokens: 80,
  ignore_eos: true,
  return_token_ids: true,
  ...(i % 2 === 0 ? { temperature: 0 } : { temperature: 0.8, seed: i }),
}));

interface Answer {
  readonly tokenIds: readonly number[];
  readonly details: {
    readonly recomputed_tokens?: number;
    readonly failed_loads?: number;
    readonly loaded_tokens?: Readonly<Record<string, number>>;
  };
}

async function ask({ complete }: Server, question: object): Promise<Answer> {
  const response = await complete(question);
  const body = await response.text();
  expect(response.status, body).toBe(200);
  const { choices, usage } = JSON.parse(body);
  return { tokenIds: choices[0].token_ids, details: usage.prompt_tokens_details };
}

/** The server is stopped until all requests are sent. So they run together, also if this process is slower than the server. */
async function askTogether(server: Server): Promise<Answer[]> {
  server.child.kill('SIGSTOP');
  let sent = 0;
  const count = (): void => void sent++;
  subscribe('undici:request:bodySent', count);
  const answers = Promise.all(questions.map((question) => ask(server, question)));
  await until(() => sent === questions.length);
  unsubscribe('undici:request:bodySent', count);
  server.child.kill('SIGCONT');
  return answers;
}

async function askInTurn(server: Server): Promise<Answer[]> {
  const answers: Answer[] = [];
  for (const question of questions) answers.push(await ask(server, question));
  return answers;
}

const textsOf = (answers: readonly Answer[]) => answers.map(({ tokenIds }) => tokenIds);
const sumOf = (answers: readonly Answer[], count: (details: Answer['details']) => number | undefined): number =>
  answers.reduce((sum, { details }) => sum + (count(details) ?? 0), 0);
const loadedFrom = (answers: readonly Answer[], tier: string): number =>
  sumOf(answers, ({ loaded_tokens }) => loaded_tokens?.[tier]);

async function tiersOf({ origin }: Server): Promise<readonly TierReport[]> {
  const { code, stdout, stderr } = await runHere(['tiers', origin, '--json']);
  expect(code, stderr).toBe(0);
  return JSON.parse(stdout).tiers;
}

const tierNamed = (tiers: readonly TierReport[], name: string): TierReport => tiers.find((tier) => tier.name === name)!;

/** Waits until no block waits to be written to the tier, and none is being written. */
async function untilWritten(server: Server, name: string): Promise<void> {
  for (;;) {
    const tiers = await tiersOf(server);
    const [{ stores: kept }, { stores: written, dropped }] = [tierNamed(tiers, 'host'), tierNamed(tiers, name)];
    if (written.blocks + dropped >= kept.blocks) return;
    await sleep(20);
  }
}

describe('a pool that is too small for all requests', () => {
  let expected: Answer[] = [];

  beforeAll(async () => {
    const server = await serve(tinyPool);
    expected = await askTogether(server);
  });

  it('preempted requests and evicted KV load from host memory, and almost nothing is computed again', async () => {
    const server = await serve([...tinyPool, '--kv-offloading-size', '0.5', ...always]);
    const answers = await askTogether(server);
    expect(textsOf(answers)).toEqual(textsOf(expected));
    expect(loadedFrom(answers, 'host')).toBeGreaterThan(0);
    expect(sumOf(answers, ({ failed_loads }) => failed_loads)).toBe(0);
    const recomputed = sumOf(answers, ({ recomputed_tokens }) => recomputed_tokens);
    // Without a tier, each preemption computes the whole request again. With it, at most a partial block.
    expect(sumOf(expected, ({ recomputed_tokens }) => recomputed_tokens)).toBeGreaterThan(100);
    expect(recomputed).toBeLessThan(sumOf(expected, ({ recomputed_tokens }) => recomputed_tokens) / 4);
    const [host] = await tiersOf(server);
    expect(host).toMatchObject({ name: 'host', openBreakers: [], maxBytes: 0.5 * 1024 ** 3 });
    expect(host!.loads.blocks * 16).toBe(loadedFrom(answers, 'host'));

    // The pool has evicted their KV meanwhile.
    const again = await askInTurn(server);
    expect(textsOf(again)).toEqual(textsOf(expected));
    expect(loadedFrom(again, 'host')).toBeGreaterThan(800);
    expect(sumOf(again, ({ recomputed_tokens }) => recomputed_tokens)).toBe(0);

    const none = await ask(server, { ...questions[0], kv_transfer_params: { max_load_tokens: 0 } });
    expect(none.tokenIds).toEqual(expected[0]!.tokenIds);
    expect(none.details.loaded_tokens).toBeUndefined();
  });

  it('after kill -9, the next server loads what the first one stored on the disk', async () => {
    const tiers = ['--kv-tier', 'host:64MiB', '--kv-tier', `disk:${join(folder, 'disk')}:1GiB`, ...always];
    const first = await serve([...tinyPool, ...tiers]);
    expect(textsOf(await askInTurn(first))).toEqual(textsOf(expected));
    await untilWritten(first, 'disk');
    first.child.kill('SIGKILL');
    const second = await serve([...tinyPool, ...tiers]);
    const answers = await askInTurn(second);
    expect(textsOf(answers)).toEqual(textsOf(expected));
    expect(loadedFrom(answers, 'disk')).toBeGreaterThan(800);
    expect(loadedFrom(answers, 'host')).toBe(0);
    // Blocks from the disk are kept in host memory: in the default form, `offloading-connector.test.ts` checks this.
    if (!isLongForm) return;
    const again = await askInTurn(second);
    expect(textsOf(again)).toEqual(textsOf(expected));
    expect(loadedFrom(again, 'disk')).toBe(0);
    expect(loadedFrom(again, 'host')).toBeGreaterThan(800);
  });

  // The default form has ranks with a store in `worker-chaos.test.ts`, and the form of vLLM in `src/connector/offloading`.
  itInLongForm('the form of vLLM does the same, also with each rank in its own process', async () => {
    const config = {
      kv_connector: 'OffloadingConnector',
      kv_role: 'kv_both',
      kv_connector_extra_config: {
        spec_name: 'TieringOffloadingSpec',
        cpu_bytes_to_use: 64 * 1024 ** 2,
        secondary_tiers: [{ type: 'fs', root_dir: join(folder, 'vllm') }],
        kv_load_policy: 'always',
      },
    };
    const flags = ['--pipeline-parallel-size', '2', '--kv-transfer-config', JSON.stringify(config)];
    const server = await serve([...tinyPool, ...flags]);
    expect(textsOf(await askTogether(server))).toEqual(textsOf(expected));
    const again = await askInTurn(server);
    expect(textsOf(again)).toEqual(textsOf(expected));
    expect(loadedFrom(again, 'host') + loadedFrom(again, 'disk')).toBeGreaterThan(800);
  });
});

describe('wrong tiers', () => {
  it.each([
    [['--kv-tier', 'hots:8GiB'], /^error: The KV tier `hots:8GiB` is wrong: there is no tier `hots`.*`host`/],
    [['--kv-tier', 'host:8'], /^error: The KV tiers are wrong: the host tier has 8 B, but one block needs /],
    [['--kv-tier', 'disk:/tmp/a', '--kv-tier', 'host:1GiB'], /^error: The KV tiers are wrong: .*Name it first/],
    [['--kv-offloading-size', '1', '--kv-tier', 'host:1GiB'], /give one of them/],
    [['--kv-offloading-size', 'much'], /It must be a number/],
    [['--kv-load-policy', 'always'], /--kv-load-policy needs --kv-tier/],
    [['--kv-tier', 'redis://127.0.0.1:1?quota=1GiB'], /there is no quota in Redis/],
    [['--kv-tier', 'host:64MiB?quota=64'], /a quota of 64 B is 64 B for each rank, but one block needs/],
    [['--kv-offloading-size', '1', '--kv-load-policy', 'never'], /Allowed choices are auto, always/],
    [['--kv-offloading-size', '1', '--kv-transfer-config.kv_connector', 'X'], /cannot be combined|kv_role/],
    [['--kv-offloading-size', '99999'], /but this (machine has|container may use) .* of memory/],
  ])('%j end the command with code 2 and a sentence', async (flags, message) => {
    const { code, stderr } = await runHere(['generate', ...tinyPool, '--prompt', 'x', '--max-tokens', '1', ...flags]);
    expect(stderr).toMatch(message);
    expect(code).toBe(2);
  });

  it('metrics by salt need tiers', async () => {
    const { code, stderr } = await runHere(['serve', '--metrics-by-salt']);
    expect(stderr).toMatch(/--metrics-by-salt needs --kv-tier .*metrics_by_salt is a field of/);
    expect(code).toBe(2);
  });

  it('a tier whose directory is a file ends the command with code 2', async () => {
    const file = join(folder, 'a-file');
    writeFileSync(file, '');
    const { code, stderr } = await runHere(['generate', ...tinyPool, '--prompt', 'x', '--kv-tier', `disk:${file}`]);
    expect(stderr).toMatch(/^error: The KV storage directory `.*a-file` cannot be used/);
    expect(code).toBe(2);
  });
});

describe('kvasir tiers', () => {
  it('shows a table, in which a request without offloading has stored nothing, and says so if a server has no tiers', async () => {
    const server = await serve([...tinyPool, '--kv-offloading-size', '0.5', '--api-key', 'secret']);
    // The request's limit: nothing is stored.
    const limits = { kv_transfer_params: { max_offload_tokens: 0 } };
    const { status } = await server.complete({ ...questions[0], ...limits }, { authorization: 'Bearer secret' });
    expect(status).toBe(200);
    const { stdout } = await runHere(['tiers', server.origin, '--api-key', 'secret']);
    expect(stdout).toMatch(/^tier +holds +of +loaded .*\nhost +- +512 MiB +0 B /);
    expect(await runHere(['tiers', server.origin])).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('status 401'),
    });
    const plain = await serve(tinyPool);
    expect((await runHere(['tiers', plain.origin])).stdout).toMatch(/^The server has no KV tiers/);
    expect(await runHere(['tiers', 'http://127.0.0.1:1'])).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^error: The server at http:\/\/127.0.0.1:1 does not answer/),
    });
  });
});
