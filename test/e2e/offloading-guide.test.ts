/** The commands of docs/offloading.md work, and its tables have exactly the settings that exist. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { JsonObject } from '../../src/base/json.ts';
import { readKvTransferConfig } from '../../src/connector/config.ts';
import { createConnector } from '../../src/connector/registry.ts';
import { buildCommand, killCommands, serve } from '../support/cli-process.ts';
import { inLongForm } from '../support/long-form.ts';
import { runHere } from '../support/run-here.ts';
import { hasS3Server, S3Server, s3Credentials } from '../support/s3-server.ts';

const guide = readFileSync('docs/offloading.md', 'utf8');
const folder = mkdtempSync(join(tmpdir(), 'kvasir-guide-'));
const keyFolder = mkdtempSync(join(tmpdir(), 'kvasir-guide-key-'));
afterAll(() => {
  for (const path of [folder, keyFolder]) rmSync(path, { recursive: true });
});

const sectionOf = (heading: string): string => {
  const from = guide.indexOf(`\n${heading}\n`);
  expect(from, heading).toBeGreaterThan(0);
  return guide.slice(from + 1).split(/\n##/, 1)[0]!;
};
const configOf = (extra: JsonObject) => ({
  kvConnector: 'OffloadingConnector',
  kvRole: 'kv_both',
  kvConnectorExtraConfig: extra,
});
const errorOf = async (extra: JsonObject): Promise<string> =>
  String(await createConnector(readKvTransferConfig(configOf(extra))).catch((error: unknown) => error));
/** The error for an unknown name lists all known names. */
const knownIn = async (extra: JsonObject): Promise<string[]> =>
  /\(known: ([^)]*)\)/.exec(await errorOf(extra))![1]!.split(', ');

const primary = { cpu_bytes_to_use: 1e9 };
const secondary = (tier: JsonObject): JsonObject => ({
  ...primary,
  spec_name: 'TieringOffloadingSpec',
  secondary_tiers: [tier],
});

describe('the guide lists', () => {
  it('the settings of the connector', async () => {
    const listed = [...sectionOf('### Settings of OffloadingConnector').matchAll(/^\| `(\w+)` \|/gm)];
    const known = await knownIn({ ...primary, nonsense: 1 });
    expect(new Set(listed.map(([, name]) => name!))).toEqual(new Set(known));
  });

  it.each([
    ['fs', { root_dir: 'x' }],
    ['obj', { store_config: { bucket: 'x' } }],
    ['redis', { url: 'redis://x' }],
  ])('the settings of a secondary tier of type %s', async (type, needed) => {
    const row = new RegExp(`^\\| \`${type}\` \\| (.*) \\|$`, 'm').exec(guide)![1]!;
    const listed = [...row.matchAll(/`([a-z_]+)`/g)].map(([, name]) => name!).filter((name) => name !== 'false');
    const known = await knownIn(secondary({ type, ...needed, nonsense: 1 }));
    expect(new Set(['module_path', 'type', ...listed])).toEqual(new Set(known));
  });

  it('the settings of a bucket', async () => {
    const row = /^`store_config` has (.*)\. /m.exec(guide)![1]!;
    const listed = [...row.matchAll(/`([a-z_]+)`/g)].map(([, name]) => name!).filter((name) => name !== 'http');
    const known = await knownIn(secondary({ type: 'obj', store_config: { bucket: 'x', nonsense: 1 } }));
    expect(new Set(listed)).toEqual(new Set(known));
  });

  it('settings and types of vLLM that are errors', async () => {
    const [, settings, types] = /settings of vLLM 0.33 are errors .*?: (.*?)\. .*?\sThe\s+types (.*?) are errors/s.exec(
      guide,
    )!;
    const names = (text: string) => [...text.matchAll(/`(\w+)`/g)].map(([, name]) => name!);
    expect(names(settings!)).toHaveLength(6);
    for (const name of names(settings!)) {
      expect(await errorOf({ ...primary, [name]: 'x' })).toMatch(
        `\`kv_connector_extra_config.${name}\` must be absent`,
      );
      expect(await errorOf({ ...primary, [name]: false })).not.toMatch('must be absent');
    }
    expect(names(types!)).toHaveLength(3);
    for (const type of names(types!))
      expect(await errorOf(secondary({ type }))).toMatch('must be one of fs, obj, redis');
  });
});

/** The words of a command of the guide, without quotes. */
const wordsOf = (command: string): string[] =>
  [...command.matchAll(/'([^']*)'|"([^"]*)"|(\S+)/g)].map(([, single, double, plain]) => single ?? double ?? plain!);
const allCommands = [...guide.matchAll(/^```sh\n([\s\S]*?)^```/gm)].flatMap(([, block]) => block!.trim().split('\n'));
const makesKeyFile = 'openssl rand -hex 32 > kv.key && chmod 600 kv.key';
const commands = allCommands.filter((command) => command !== makesKeyFile);

describe('the commands of the guide', () => {
  let endpoint = 'http://127.0.0.1:1';
  beforeAll(async () => {
    await buildCommand();
    execFileSync('sh', ['-c', makesKeyFile], { cwd: keyFolder });
    if (!hasS3Server) return;
    const server = await S3Server.start('kv-blocks');
    endpoint = server.endpoint;
    return () => server.stop();
  });
  afterEach(killCommands);

  /** The bundled model, a temporary folder and less memory. Redis, and S3 without a test server, do not answer. */
  const onThisMachine = (word: string): string =>
    word
      .replace('/var/cache/kvasir', folder)
      .replace('kv.key', join(keyFolder, 'kv.key'))
      .replace('http://s3.example:9000', endpoint)
      .replace('redis.example:6379', '127.0.0.1:1')
      .replace('8GiB', '64MiB')
      .replace('8589934592', `${64 * 1024 ** 2}`)
      .replace(/^8$/, '0.0625');

  const serving = commands.map(wordsOf).filter(([program, command]) => program === 'kvasir' && command === 'serve');
  const showing = commands.map(wordsOf).filter(([program, command]) => program === 'kvasir' && command === 'tiers');
  const credentials = {
    AWS_ACCESS_KEY_ID: s3Credentials.accessKeyId,
    AWS_SECRET_ACCESS_KEY: s3Credentials.secretAccessKey,
    AWS_REGION: 'us-east-1',
  };

  it('are all run here', () => {
    expect(serving).toHaveLength(9);
    expect(commands).toHaveLength(allCommands.length - 1);
    expect(showing).toHaveLength(1);
    expect(serving.length + showing.length).toBe(commands.length);
  });

  // A start of the server costs more than its requests.
  const served = inLongForm(
    serving,
    serving.filter((_, index) => index % 3 === 0),
  );
  it.each(served.map((words) => [words.slice(3).join(' '), words]))(
    'start a server with the tiers, which `kvasir tiers` shows: %s',
    async (_, words) => {
      expect(words[2]).toBe('model.gguf');
      const server = await serve(words.slice(3).map(onThisMachine), credentials);
      const response = await server.complete({ prompt: 'Once upon a time there was a fox. '.repeat(8), max_tokens: 2 });
      expect(response.status).toBe(200);
      const { code, stdout } = await runHere(
        showing[0]!.slice(1).map((word) => (word.startsWith('http') ? server.origin : word)),
      );
      expect(code).toBe(0);
      const shown = stdout.split('\n').map((line) => line.split(/ +/)[0]!);
      const types: Readonly<Record<string, string>> = { disk: '"fs"', FolderTier: '"FolderTier"' };
      const names = ['host', 'disk', 'redis', 's3', 'FolderTier'];
      const expected = names.filter((tier) =>
        words.some((word) => word.startsWith(`${tier}:`) || word.includes(types[tier] ?? '\0')),
      );
      expect(shown.filter((name) => names.includes(name))).toEqual(
        expected.includes('host') ? expected : ['host', ...expected],
      );
    },
  );

  /** Blocks of commands with their outputs. A session begins with a server. */
  const sessions = (): (readonly Step[])[] => {
    const found: Step[][] = [];
    for (const [, block] of guide.matchAll(/^```\n(\$ [\s\S]*?)^```/gm))
      for (const step of block!.split(/^\$ /m).filter((text) => text !== '')) {
        const [command = '', ...output] = step.trimEnd().split('\n');
        if (command.startsWith('kvasir serve')) found.push([]);
        found.at(-1)!.push({ command, output: output.join('\n') });
      }
    return found;
  };

  it.each([
    ['orders', 0],
    ['quotas and pins', 1],
  ])('print in the session with %s what the guide says', async (_, index) => {
    const steps = sessions()[index]!;
    const [serving, ...others] = steps;
    const home = mkdtempSync(join(folder, 'session-'));
    const onHome = (word: string): string =>
      word.replace('/var/cache/kvasir', join(home, 'first')).replace('/mnt/second', join(home, 'second'));
    const server = await serve(wordsOf(serving!.command).slice(2).map(onHome));
    const countOf = async (prompt: string): Promise<number> =>
      ((await (await server.post('/tokenize', { prompt })).json()) as { count: number }).count;
    /** Of about so many tokens. */
    const promptOf = async (tokens: number, start: string): Promise<string> => {
      let prompt = start;
      while ((await countOf(`${prompt} a`)) <= tokens)
        prompt += ' a'.repeat(Math.max(1, (tokens - (await countOf(prompt))) >> 1));
      return prompt;
    };
    const prompt = await promptOf(49, 'You answer briefly.');
    expect(await countOf(prompt)).toBe(49);
    writeFileSync(join(home, 'prompt.txt'), prompt);
    const request = { max_tokens: 1, temperature: 0 };
    const requests: Readonly<Record<string, object>> = {
      'team-a': { ...request, prompt, cache_salt: 'team-a' },
      'team-b': { ...request, prompt: await promptOf(1000, 'A long story:'), cache_salt: 'team-b' },
    };
    if (index === 0) expect((await server.complete({ ...request, prompt })).status).toBe(200);
    const output = async (command: string): Promise<string> => {
      const words = wordsOf(command).map(onHome);
      if (words[0] === 'kvasir') {
        const args = words.slice(1).map((word) => (word === 'prompt.txt' ? join(home, word) : word));
        const { stdout, stderr } = await runHere([...args, '--url', server.origin, '--api-key', 'secret']);
        return stdout + stderr;
      }
      const [, team] = /@(team-.)\.json/.exec(command) ?? [];
      if (team !== undefined) {
        expect((await server.complete(requests[team]!)).status).toBe(200);
        return '';
      }
      const [, path, pattern] = /127\.0\.0\.1:8000(\S+)(?: \| grep (.*))?$/.exec(command)!;
      // Reports of tiers come with steps.
      if (path === '/metrics') await server.complete(requests['team-a']!);
      const response = await fetch(server.origin + path!, { headers: { authorization: 'Bearer secret' } });
      const lines = (await response.text()).trimEnd().split('\n');
      return lines.filter((line) => pattern === undefined || line.includes(pattern)).join('\n');
    };
    for (const { command, output: expected } of others) {
      if (command.startsWith('export ')) continue;
      const printed = async () => plain(await output(command));
      // Else, blocks that wait to be written are dropped too, and the command says so.
      const unwritten = 'curl -s http://127.0.0.1:8000/metrics | grep tier_open_stores{tier="disk"';
      if (command.includes(' clear disk'))
        await expect.poll(() => output(unwritten), { timeout: 60_000 }).toMatch(/ 0$/);
      if (/ (lookup|pin) |metrics/.test(command)) await expect.poll(printed, { timeout: 60_000 }).toBe(plain(expected));
      else expect(await printed(), command).toBe(plain(expected));
    }
  });
});

interface Step {
  readonly command: string;
  readonly output: string;
}

/** Without what differs between prompts, machines and runs. */
const plain = (text: string): string =>
  text
    .trimEnd()
    .replaceAll(/pin-[0-9a-f]{16}/g, 'pin')
    .replaceAll(/"seconds_left":\d+/g, '"seconds_left":0')
    .replace(/"max_blocks":\d+,"expired":0,"evicted":0/, '"max_blocks":0,"expired":0,"evicted":0');
