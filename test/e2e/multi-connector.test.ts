/**
 * A server with two connectors, host memory above Redis and a directory, while Redis is killed, the directory does not answer, and the server itself is
 * killed. All texts are those of a server without connectors.
 */
import { spawnSync } from 'node:child_process';
import { closeSync, constants, openSync, readdirSync, renameSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { buildCommand, killCommands, run, serve } from '../support/cli-process.ts';
import { type FleetAnswer, FleetMember, type FleetQuestion } from '../support/fleet-member.ts';
import { needs } from '../support/needs.ts';
import { hasRedisServer, needsRedisServer, RedisServer } from '../support/redis-server.ts';
import { temporaryFolder } from '../support/tiny-model.ts';

const folder = temporaryFolder();
const smallPool = ['--kv-cache-memory', '4MB', '--threads', '1', '--max-num-seqs', '4'];
const questions = Array.from(
  { length: 4 },
  (_, i): FleetQuestion => ({
    prompt: `${i} owls went out. ${`Once upon a time there was an owl number ${i} who had ${i} friends. `.repeat(5)}`,
    max_tokens: 24,
    ...(i % 2 === 0 ? { temperature: 0 } : { temperature: 0.8, seed: i }),
  }),
);
const expected: (readonly number[])[] = [];
const stops: (() => Promise<unknown>)[] = [];

beforeAll(buildCommand);
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop();
  killCommands();
});
afterAll(() => folder.remove());

/** The short deadlines are of the store that does not answer. */
function withConnectors(redis: string, directory: string): readonly string[] {
  const deadlines = { lookup_timeout_seconds: 2, load_timeout_seconds: 2, save_timeout_seconds: 2 };
  const above = { tiers: ['host:16MiB', redis], kv_load_policy: 'always', busy_write_share: 1, ...deadlines };
  const config = {
    kv_connector: 'MultiConnector',
    kv_role: 'kv_both',
    kv_connector_extra_config: {
      connectors: [
        { kv_connector: 'OffloadingConnector', kv_connector_extra_config: above },
        {
          kv_connector: 'SharedStorageConnector',
          kv_connector_extra_config: { shared_storage_path: directory, ...deadlines },
        },
      ],
    },
  };
  return [...smallPool, '--kv-transfer-config', JSON.stringify(config)];
}

/** All questions at once, without KV in the server. The tokens that were loaded, by place, and those that could be. */
async function askAll(server: FleetMember, onToken?: () => void) {
  const answers = await Promise.all(questions.map((question) => server.ask(question, onToken)));
  for (const [i, { tokenIds, interrupted }] of answers.entries()) {
    expect(tokenIds, `question ${i}`).toEqual(expected[i]);
    for (const part of interrupted) expect(part).toEqual(expected[i]!.slice(0, part.length));
  }
  const loaded: Record<string, number> = {};
  for (const answer of answers)
    for (const [place, tokens] of Object.entries(answer.loaded)) loaded[place] = (loaded[place] ?? 0) + tokens;
  return { loaded, loadable: answers.reduce((sum, { loadable }: FleetAnswer) => sum + loadable, 0) };
}

const filesOf = (directory: string): string[] =>
  readdirSync(directory, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.kv'))
    .map((name) => join(directory, name));

/** The files become FIFOs, whose `open` does not return, as on a dead network file system. Returns a function that brings the files back. */
function silence(directory: string): () => void {
  const files = filesOf(directory);
  for (const path of files) {
    renameSync(path, `${path}.kept`);
    expect(spawnSync('mkfifo', [path]).status).toBe(0);
  }
  return () => {
    for (const path of files) {
      closeSync(openSync(path, constants.O_RDWR | constants.O_NONBLOCK));
      renameSync(`${path}.kept`, path);
    }
  };
}

describe('a server with two connectors', needs(hasRedisServer, needsRedisServer), () => {
  beforeAll(async () => {
    const alone = new FleetMember(() => serve(smallPool));
    for (const question of questions) expected.push((await alone.ask(question)).tokenIds);
    await alone.stop();
  });

  it('has the same texts while one store and then the other is dead, and while it is killed itself', async () => {
    const redis = await RedisServer.start();
    stops.push(() => redis.stop());
    const directory = folder.file('shared');
    const server = new FleetMember(() => serve(withConnectors(redis.url, directory)));
    stops.push(() => server.stop());
    const forget = () => server.forget('c0-host');
    const inRedis = () => Promise.all(questions.map((question) => server.untilStored(question, ['c0-redis'])));
    const cold = await askAll(server);
    expect(cold.loaded).toEqual({});
    await inRedis();
    await expect.poll(() => filesOf(directory).length, { timeout: 60_000 }).toBeGreaterThanOrEqual(cold.loadable / 16);

    // kill -9 of Redis, in the middle of the answers: the directory has all blocks.
    await forget();
    let death: Promise<void> | undefined;
    await askAll(server, () => (death ??= redis.kill()));
    await death;
    await forget();
    const withoutRedis = await askAll(server);
    expect(withoutRedis.loaded['c1-shared-storage']).toBe(withoutRedis.loadable);

    // A new, empty Redis gets the blocks that the directory has.
    await redis.run();
    await expect
      .poll(
        async () => {
          await forget();
          await askAll(server);
          const stored = await Promise.all(questions.map((question) => server.hasStored(question, ['c0-redis'])));
          return stored.every((isStored) => isStored);
        },
        { timeout: 120_000, interval: 500 },
      )
      .toBe(true);

    // The directory does not answer: Redis has all blocks.
    const mend = silence(directory);
    await forget();
    const withoutDirectory = await askAll(server);
    expect(withoutDirectory.loaded).toEqual({ 'c0-redis': withoutDirectory.loadable });
    mend();

    // kill -9 of the server, in the middle of its answers.
    server.killInMiddleOfAnswers(2);
    for (let i = 0; i < 3; i++) await askAll(server);
    expect(server.killCount).toBe(2);
    await forget();
    const after = await askAll(server);
    expect(Object.values(after.loaded).reduce((sum, tokens) => sum + tokens, 0)).toBe(after.loadable);
  });
});

it.each<[string, unknown, RegExp]>([
  [
    'an empty list',
    [],
    /KVASIR_KV_CONFIG_INVALID.*|`kv_connector_extra_config.connectors` must be a list with a length/,
  ],
  ['an unknown connector', [{ kv_connector: 'Nixl' }], /There is no connector `Nixl`/],
  [
    'one directory twice',
    [0, 1].map(() => ({
      kv_connector: 'SharedStorageConnector',
      kv_connector_extra_config: { shared_storage_path: 'kv' },
    })),
    /connectors\[1\]` must be a connector with a store of its own/,
  ],
])('a server with %s does not start', async (_, connectors, message) => {
  const config = { kv_connector: 'MultiConnector', kv_role: 'kv_both', kv_connector_extra_config: { connectors } };
  const { code, stderr } = await run([
    'serve',
    ...smallPool,
    '--port',
    '0',
    '--kv-transfer-config',
    JSON.stringify(config),
  ]);
  expect(stderr).toMatch(message);
  expect(code).toBe(2);
});
