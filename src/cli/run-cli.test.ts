import { EventEmitter } from 'node:events';
import { Readable } from 'node:stream';
import { describe, expect, it, vi } from 'vitest';
import { LetterEngine, type LetterEngineOptions, lettersOf } from '../../test/support/letter-engine.ts';
import { runHere } from '../../test/support/run-here.ts';
import { keyFileInvalid } from '../connector/errors.ts';
import type { EngineOptions } from '../engine/options.ts';
import type { CliContext } from './context.ts';
import { generateCommand } from './generate.ts';
import { runCli } from './run-cli.ts';
import { serveCommand } from './serve.ts';
import { simCommand } from './sim.ts';

/** Runs the commands in this process, with inputs and outputs of the test. `test/e2e` runs the built command. */
function cli(engineOptions: LetterEngineOptions = {}, change: Partial<CliContext> = {}) {
  const signals = new EventEmitter();
  const engine = new LetterEngine(engineOptions);
  const seen = { stdout: '', stderr: '', options: [] as EngineOptions[], exits: [] as number[] };
  const sink = (name: 'stdout' | 'stderr') => ({
    write(text: string) {
      seen[name] += text;
    },
  });
  const context: CliContext = {
    version: '1.2.3',
    createEngine: async (options) => {
      seen.options.push(options);
      return engine;
    },
    stdout: sink('stdout'),
    stderr: sink('stderr'),
    stdin: Readable.from([Buffer.from('abc\n')]),
    signals,
    exitNow: (code) => void seen.exits.push(code),
    ...change,
  };
  const run = (...argv: string[]) => runCli(argv, context, [serveCommand, generateCommand]);
  return { run, seen, engine, signals };
}

const never = () => new Promise<never>(() => {});

/** The engine options that `flags` give. */
async function optionsOf(...flags: string[]) {
  const { run, seen } = cli();
  const code = await run('generate', '--prompt', 'abc', '--max-tokens', '1', ...flags);
  return { code, options: seen.options[0] };
}

describe('runCli', () => {
  it('passes the flags to the engine under the names of its options', async () => {
    const { run, seen } = cli();
    const flags = [
      '--model',
      'm.gguf',
      '--max-model-len',
      '99',
      '--kv-cache-memory',
      '1MiB',
      '--no-enable-prefix-caching',
    ];
    expect(
      await run('generate', '--prompt', 'abc', ...flags, '--numerics', 'fast', '--threads', '3', '--cpus', '0,2-3'),
    ).toBe(0);
    expect(seen.options[0]).toMatchObject({
      model: 'm.gguf',
      maxModelLen: 99,
      kvCacheMemory: 1024 ** 2,
      enablePrefixCaching: false,
      numerics: 'fast',
      threads: 3,
      cpus: [0, 2, 3],
      blockSize: 16,
    });
  });

  it('passes the given sampling flags, and leaves out the others', async () => {
    const { run, engine } = cli();
    const flags = ['--top-k', '5', '--stop', 'q', '--stop', 'zz', '--seed', '9', '--ignore-eos', '--max-tokens', '3'];
    expect(await run('generate', '--prompt', '-', ...flags)).toBe(0);
    expect(engine.requests[0]!.params).toEqual({
      temperature: 0.7,
      minP: 0.05,
      maxTokens: 3,
      topK: 5,
      stop: ['q', 'zz'],
      seed: 9n,
      ignoreEos: true,
    });
    expect([...(engine.requests[0]!.prompt as Int32Array)]).toEqual([97, 98, 99]);
  });

  it('writes only the result to stdout', async () => {
    const { run, seen } = cli();
    await run('generate', '--prompt', 'abc', '--max-tokens', '4');
    expect(seen.stdout).toBe(`${lettersOf(3, 4)}\n`);
    expect(seen.stderr).toBe('');
  });

  it('closes the engine, also after an error', async () => {
    for (const options of [{}, { throws: new Error('boom') }] satisfies LetterEngineOptions[]) {
      const { run, engine, seen } = cli(options);
      expect(await run('generate', '--prompt', 'abc')).toBe('throws' in options ? 1 : 0);
      expect(engine.isHealthy()).toBe(false);
      if ('throws' in options) expect(seen.stderr).toMatch(/^internal error: Error: boom\n +at /);
    }
  });

  it('ends at Ctrl-C while a model loads', async () => {
    for (const command of [
      ['generate', '--prompt', 'abc'],
      ['serve', '--port', '0'],
    ]) {
      const { run, signals } = cli({}, { createEngine: never });
      const code = run(...command);
      await vi.waitFor(() => expect(signals.listenerCount('SIGINT')).toBe(1), { timeout: 30_000, interval: 1 });
      await new Promise(setImmediate);
      signals.emit('SIGINT');
      expect(await code).toBe(130);
      expect(signals.listenerCount('SIGINT')).toBe(0);
    }
  });

  it('aborts its request at Ctrl-C', async () => {
    const { run, engine, signals, seen } = cli({ beforeStep: never });
    const code = run('generate', '--prompt', 'abc', '--json');
    await vi.waitFor(() => expect(engine.stats().running).toBe(1), { timeout: 30_000, interval: 1 });
    signals.emit('SIGINT');
    expect(await code).toBe(130);
    expect(engine.stats()).toMatchObject({ running: 0, aborts: 1 });
    expect(seen).toMatchObject({ stdout: '', exits: [] });
  });

  it('ends the process at a second signal, with the code of that signal', async () => {
    const { run, signals, seen } = cli({}, { createEngine: never });
    const code = run('generate', '--prompt', 'abc');
    await vi.waitFor(() => expect(signals.listenerCount('SIGINT')).toBe(1), { timeout: 30_000, interval: 1 });
    signals.emit('SIGINT');
    signals.emit('SIGTERM');
    expect(seen.exits).toEqual([143]);
    expect(await code).toBe(143);
  });
});

describe('--kv-transfer-config', () => {
  const json = '{"kv_connector":"SharedStorageConnector","kv_role":"kv_both"}';
  const dotted = (field: string) => `--kv-transfer-config.${field}`;

  it('is accepted as JSON, as dotted fields, or both; dotted fields override the JSON', async () => {
    const config = async (...flags: string[]) => (await optionsOf(...flags)).options?.kvTransferConfig;
    const path = dotted('kv_connector_extra_config.shared_storage_path');
    const rest = { kvLoadFailurePolicy: 'recompute' };
    expect(await config('--kv-transfer-config', json)).toEqual({
      kvConnector: 'SharedStorageConnector',
      kvRole: 'kv_both',
      kvConnectorExtraConfig: {},
      ...rest,
    });
    expect(await config(dotted('kv_connector'), 'X', dotted('kv-role=kv_consumer'), path, '/x')).toEqual({
      kvConnector: 'X',
      kvRole: 'kv_consumer',
      kvConnectorExtraConfig: { shared_storage_path: '/x' },
      ...rest,
    });
    expect(await config(path, '/y', '--kv-transfer-config', json, dotted('kv_role'), 'kv_producer')).toEqual({
      kvConnector: 'SharedStorageConnector',
      kvRole: 'kv_producer',
      kvConnectorExtraConfig: { shared_storage_path: '/y' },
      ...rest,
    });
    expect(await config()).toBeUndefined();
  });

  it.each<[string, string[], RegExp]>([
    ['no JSON', ['--kv-transfer-config', '{'], /^error: --kv-transfer-config is not JSON/m],
    ['an unknown role', ['--kv-transfer-config', json, dotted('kv_role'), 'both'], /`kv_role` must be one of .*"both"/],
    ['an unknown field', [dotted('kv_rol'), 'x'], /`kv_rol` must be absent.*Did you mean `kv_role`/],
    ['a field without a value', [dotted('kv_role')], /`kv_role` must be followed by a value, got nothing/],
  ])('is refused with code 2 before anything is loaded: %s', async (_, flags, message) => {
    const { run, seen } = cli();
    expect(await run('generate', '--prompt', 'abc', ...flags)).toBe(2);
    expect(seen.stderr).toMatch(message);
    expect(seen.options).toEqual([]);
  });

  it('gets the key file of --kv-transfer-key-file, which needs a connector', async () => {
    const { options } = await optionsOf('--kv-tier', 'host:1GiB', '--kv-transfer-key-file', '/run/keys');
    expect(options?.kvTransferConfig).toMatchObject({ kvTransferKeyFile: '/run/keys' });
    const given = await optionsOf('--kv-transfer-config', json, '--kv-transfer-key-file', '/run/keys');
    expect(given.options?.kvTransferConfig).toMatchObject({ kvRole: 'kv_both', kvTransferKeyFile: '/run/keys' });
    expect(await optionsOf('--kv-transfer-key-file', '/run/keys')).toEqual({ code: 2, options: undefined });
    const both = ['--kv-transfer-key-file', '/run/keys', '--kv-transfer-encrypt'];
    const encrypts = await optionsOf('--kv-tier', 'host:1GiB', ...both);
    expect(encrypts.options?.kvTransferConfig).toMatchObject({
      kvTransferKeyFile: '/run/keys',
      kvTransferEncrypt: true,
    });
    for (const others of [[], ['--kv-tier', 'host:1GiB'], ['--kv-transfer-config', json]])
      expect(await optionsOf('--kv-transfer-encrypt', ...others)).toEqual({ code: 2, options: undefined });
    const wrong = cli({}, { createEngine: () => Promise.reject(keyFileInvalid({ path: 'x', reason: 'y' })) });
    expect(await wrong.run('generate', '--prompt', 'abc', '--kv-tier', 'host:1GiB')).toBe(2);
  });

  it('is an unknown option for a command without an engine', async () => {
    let err = '';
    const silent = { write: () => undefined };
    const context: CliContext = {
      version: '1.2.3',
      createEngine: never,
      stdout: silent,
      stderr: { write: (text) => (err += text) },
      stdin: Readable.from([]),
      signals: new EventEmitter(),
      exitNow: never,
    };
    expect(await runCli(['sim', dotted('kv_role'), 'kv_both'], context, [simCommand])).toBe(2);
    expect(err).toContain("unknown option '--kv-transfer-config.kv_role'");
  });
});

it('passes the number of ranks and the executor backend', async () => {
  const flags = ['--pipeline-parallel-size', '2', '--distributed-executor-backend', 'mp'];
  expect(await optionsOf(...flags)).toMatchObject({
    code: 0,
    options: { pipelineParallelSize: 2, distributedExecutorBackend: 'mp' },
  });
  const { options } = await optionsOf();
  expect(options).toMatchObject({ pipelineParallelSize: 1 });
  expect(options).not.toHaveProperty('distributedExecutorBackend');
  expect((await optionsOf('--pipeline-parallel-size', '0')).code).toBe(2);
  expect((await optionsOf('--distributed-executor-backend', 'ray')).code).toBe(2);
});

it('passes the number of layers on the GPU, or a word', async () => {
  for (const [value, gpuLayers] of [
    ['0', 0],
    ['99', 99],
    ['all', 'all'],
    ['auto', 'auto'],
  ] as const)
    expect(await optionsOf('--gpu-layers', value)).toMatchObject({ code: 0, options: { gpuLayers } });
  expect(await optionsOf()).toMatchObject({ options: { gpuLayers: 'auto' } });
  for (const wrong of ['-1', '1.5', '', 'some', '1e3']) expect((await optionsOf('--gpu-layers', wrong)).code).toBe(2);
});

it("writes an engine's events to standard error, not to the text", async () => {
  const engine = new LetterEngine();
  const { run, seen } = cli(
    {},
    {
      createEngine: async ({ onEvent }) => {
        onEvent?.({ level: 'warn', message: 'A load failed.', fields: {} });
        onEvent?.({ level: 'error', message: 'Another load failed.', fields: {} });
        return engine;
      },
    },
  );
  await run('generate', '--prompt', 'abc', '--max-tokens', '4');
  expect(seen).toMatchObject({
    stdout: `${lettersOf(3, 4)}\n`,
    stderr: 'warning: A load failed.\nerror: Another load failed.\n',
  });
});

it('errors that end a server are lines of the log with --log-format json', async () => {
  const json = ['--log-format', 'json', '--port', '0'];
  const lines = async (...args: string[]) => {
    const { code, stderr } = await runHere(['serve', ...json, ...args]);
    const [line = '', ...more] = stderr.split('\n');
    expect(more).toEqual(['']);
    return { exit: code, ...JSON.parse(line) };
  };
  const unreadable = {
    level: 50,
    code: 'KVASIR_MODEL_FILE_UNREADABLE',
    msg: expect.stringMatching(/^error: .*no\.gguf/),
  };
  expect(await lines('no.gguf')).toMatchObject({ exit: 1, ...unreadable });
  const tier = { level: 50, code: 'KVASIR_TIER_SPEC_INVALID', msg: expect.stringContaining('host:8GiB') };
  expect(await lines('--kv-tier', 'host:x')).toMatchObject({ exit: 2, ...tier });
});
