/**
 * Fleets: servers that share stores, while processes of the fleet and of the stores are killed. All texts are those of a server alone.
 * `KVASIR_FUZZ_RUNS=60` asks so many questions, kills a third as often, and plays all fleets.
 */
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { buildKernels } from '../../scripts/prebuild/build-kernels.ts';
import { targets } from '../../scripts/prebuild/targets.ts';
import { platformName } from '../../src/native/prebuilt.ts';
import { bundledKernels } from '../support/bundled-kernels.ts';
import { buildCommand, killCommands, mainInModules, serve } from '../support/cli-process.ts';
import { environmentOf, lacking, type Machine } from '../support/engine-of-build.ts';
import { type FleetAnswer, FleetMember, type FleetQuestion } from '../support/fleet-member.ts';
import { hasCompiler } from '../support/has-compiler.ts';
import { fuzzRuns } from '../support/long-form.ts';
import { needs } from '../support/needs.ts';
import { RedisCluster, withClient } from '../support/redis-cluster.ts';
import { hasRedisServer, needsRedisServer, RedisServer } from '../support/redis-server.ts';
import { hasS3Server, noS3Server, S3Server, s3Credentials } from '../support/s3-server.ts';
import { temporaryFolder } from '../support/tiny-model.ts';
import { zig } from '../support/zig.ts';

const folder = temporaryFolder();
/** 80 blocks of the demo model. */
const smallPool = ['--kv-cache-memory', '4MB', '--threads', '1', '--max-num-seqs', '4'];
/** No two prompts have the same first block. */
const questionOf = (i: number): FleetQuestion => ({
  prompt: `${i} foxes went out. ${`Once upon a time there was a fox number ${i} who had ${i} friends. `.repeat(5)}`,
  max_tokens: 32,
  ...(i % 2 === 0 ? { temperature: 0 } : { temperature: 0.8, seed: i }),
});
const defaultCount = 8;
const questions = Array.from({ length: fuzzRuns(defaultCount) }, (_, i) => questionOf(i));
/** With more questions than usual, all fleets. */
const isWhole = questions.length > defaultCount;
const lateQuestion = questionOf(questions.length);
const expected: (readonly number[])[] = [];
const stops: (() => Promise<unknown>)[] = [];

beforeAll(async () => {
  await buildCommand();
  if (!hasRedisServer) return;
  const alone = new FleetMember(() => serve(smallPool));
  for (const question of [...questions, lateQuestion]) expected.push((await alone.ask(question)).tokenIds);
  killCommands();
});
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop();
  killCommands();
});
afterAll(() => folder.remove());

/** Small host memory above the tiers. Servers load all blocks that a request needs, and write blocks at once: also if all CPUs are in use. */
function withTiers(...tiers: readonly string[]): readonly string[] {
  const deadlines = { lookup_timeout_seconds: 60, load_timeout_seconds: 60, save_timeout_seconds: 60 };
  const extra = { tiers: ['host:16MiB', ...tiers], kv_load_policy: 'always', busy_write_share: 1, ...deadlines };
  const config = { kv_connector: 'OffloadingConnector', kv_role: 'kv_both', kv_connector_extra_config: extra };
  return [...smallPool, '--kv-transfer-config', JSON.stringify(config)];
}

function newMember(start: ConstructorParameters<typeof FleetMember>[0]): FleetMember {
  const member = new FleetMember(start);
  stops.push(() => member.stop());
  return member;
}

/** The answer, with the text of a server alone, also of each answer that was interrupted. */
async function ask(member: FleetMember, i: number, onToken?: () => void): Promise<FleetAnswer> {
  const answer = await member.ask(questionOf(i), onToken);
  expect(answer.tokenIds, `question ${i}`).toEqual(expected[i]);
  for (const part of answer.interrupted) expect(part, `question ${i}`).toEqual(expected[i]!.slice(0, part.length));
  return answer;
}

const sumOf = (loaded: Readonly<Record<string, number>>): number => Object.values(loaded).reduce((a, b) => a + b, 0);

/** Its kernels are those that the package has, if Zig is here to build them. */
async function machineWithAvx2(): Promise<Machine> {
  const build = 'haswell';
  if (zig === undefined) return { build, cpuFlags: '-march=haswell' };
  const target = targets.find(({ name }) => name === platformName())!;
  const prebuilt = folder.file('prebuilt');
  const cacheFolder = join(process.cwd(), '.cache', 'zig');
  await buildKernels(target, bundledKernels(new Set(['avx2'])), { zig, folder: prebuilt, cacheFolder });
  return { build, prebuilt };
}
const avx512: Machine = { build: 'skylakex', cpuFlags: '-march=skylake-avx512' };

interface Fleet {
  readonly title: string;
  readonly steady: Machine;
  readonly killed: () => Promise<Machine>;
  readonly lacks: string | undefined;
}
const fleets: readonly Fleet[] = [
  {
    title: 'one with compiled kernels for AVX-512, and one with prebuilt kernels for AVX2 that is killed',
    steady: avx512,
    killed: machineWithAvx2,
    lacks: lacking('haswell') ?? lacking(avx512.build),
  },
  {
    title: 'one with all of this CPU, also AMX, and one with AVX-512 that is killed',
    steady: { build: 'sapphirerapids' },
    killed: async () => avx512,
    lacks: lacking('sapphirerapids'),
  },
];
const clients = 2;

describe('two servers with other instructions that share Redis and S3', {
  ...needs(hasCompiler, 'no C compiler'),
  ...needs(hasRedisServer, needsRedisServer),
  ...needs(hasS3Server, noS3Server),
}, () => {
  const shared = ['redis', 's3'];

  for (const fleet of isWhole ? fleets : fleets.slice(0, 1))
    it(`load blocks of each other: ${fleet.title}`, needs(fleet.lacks === undefined, fleet.lacks ?? ''), async () => {
      const [redis, s3] = await Promise.all([RedisServer.start(), S3Server.start('fleet')]);
      stops.push(
        () => redis.stop(),
        () => s3.stop(),
      );
      const flags = withTiers(redis.url, `s3://fleet/kv?endpoint=${s3.endpoint}`);
      const { accessKeyId: AWS_ACCESS_KEY_ID, secretAccessKey: AWS_SECRET_ACCESS_KEY } = s3Credentials;
      const memberOf = (machine: Machine): FleetMember => {
        const environment = { ...environmentOf(machine), AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY };
        return newMember(() => serve(flags, environment, { main: mainInModules }));
      };
      const [steady, killed] = [memberOf(fleet.steady), memberOf(await fleet.killed())];

      // Each question goes to one server and then to the other.
      killed.killInMiddleOfAnswers(Math.ceil(questions.length / 3));
      let fromKilled = 0;
      let next = 0;
      const client = async (): Promise<void> => {
        while (next < questions.length) {
          const i = next++;
          if (i % 2 === 0) {
            await ask(steady, i);
            await steady.untilStored(questionOf(i), shared);
            const { loaded, loadable } = await ask(killed, i);
            expect(sumOf(loaded), `question ${i}`).toBe(loadable);
          } else {
            await ask(killed, i);
            // The server may have died before it stored all blocks.
            fromKilled += sumOf((await ask(steady, i)).loaded);
          }
        }
      };
      await Promise.all(Array.from({ length: clients }, client));
      expect(killed.killCount).toBeGreaterThan(0);

      killed.killInMiddleOfAnswers(0);
      await ask(killed, questions.length);
      await killed.untilStored(lateQuestion, shared);
      const late = await ask(steady, questions.length);
      fromKilled += sumOf(late.loaded);
      expect(sumOf(late.loaded)).toBe(late.loadable);
      expect(fromKilled).toBeGreaterThan(0);
      // From S3 alone.
      await withClient(redis, async (client) => void (await client.flushall()));
      await killed.forget();
      const { loaded, loadable } = await ask(killed, 0);
      expect(loaded).toEqual({ s3: loadable });
    });
});

describe('a server above a cluster of three Redis servers', needs(hasRedisServer, needsRedisServer), () => {
  it('has the same texts while a node is killed, and all of its blocks again when the node is back', async () => {
    const cluster = await RedisCluster.start(3, ['--cluster-node-timeout', '500']);
    stops.push(() => cluster.stop());
    const server = newMember(() => serve(withTiers(cluster.url)));
    /** All questions at once, without KV in the server. */
    const askAll = async (onToken?: () => void) => {
      await server.forget();
      const answers = await Promise.all(questions.map((_, i) => ask(server, i, onToken)));
      const sum = (count: (answer: FleetAnswer) => number) => answers.reduce((total, each) => total + count(each), 0);
      const [loaded, loadable] = [sum((answer) => sumOf(answer.loaded)), sum((answer) => answer.loadable)];
      expect(await server.get('/health')).toBe(200);
      return { loaded, missing: loadable - loaded };
    };
    await askAll();
    for (const question of questions) await server.untilStored(question, ['redis']);
    const [, node] = cluster.nodes;
    let death: Promise<void> | undefined;
    await askAll(() => (death ??= node!.kill()));
    await death;
    const without = await askAll();
    expect(without.loaded).toBeGreaterThan(0);
    expect(without.missing).toBeGreaterThan(0);
    await node!.run();
    await cluster.ready();
    await cluster.needAllSlots();
    await node!.kill();
    await cluster.untilRefused();
    expect((await askAll()).loaded).toBe(0);
    await node!.run();
    await cluster.ready();
    // Blocks of the node are computed and stored again. Each connection learns by itself that the node is back.
    await expect.poll(async () => (await askAll()).missing).toBe(0);
  });
});
