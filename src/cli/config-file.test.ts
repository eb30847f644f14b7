import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command } from 'commander';
import { afterAll, describe, expect, it } from 'vitest';
import { runHere } from '../../test/support/run-here.ts';
import { readConfigFlag } from './config-file.ts';
import { serveCommand } from './serve.ts';

const folder = mkdtempSync(join(tmpdir(), 'kvasir-config-'));
const path = join(folder, 'server.yaml');
afterAll(() => rmSync(folder, { recursive: true }));

/** The options and the argument that `kvasir serve` gets from the file and these flags. */
async function read(yaml: string, ...flags: string[]) {
  writeFileSync(path, yaml);
  const silent = { write: () => undefined };
  const serve = serveCommand({ stdout: silent, stderr: silent } as never, () => undefined);
  let model: unknown;
  serve.exitOverride().configureOutput({ writeErr: () => undefined });
  serve.action((given) => {
    model = given;
  });
  const program = new Command().addCommand(serve).hook('preAction', (_, command) => readConfigFlag(command));
  await program.parseAsync(['serve', '--config', path, ...flags], { from: 'user' });
  return { model, ...serve.opts() };
}

describe('--config', () => {
  it('reads every kind of flag', async () => {
    const options = await read(`
# a comment
model: m.gguf
port: 9000
max_model_len: 4k
kv-cache-memory: 2GiB
enable-prefix-caching: false
enable-fault-injection: true
api-key: [0123, 'b#c', 1e3]
served-model-name: one
allowed-origins: [https://a.example, https://b.example]
cpus: [0, 2-3]
numerics: fast
ssl-cert-reqs: 0
seed: 7
kv-transfer-config:
  kv_connector: SharedStorageConnector
  kv_connector_extra_config: {shared_storage_path: /kv, n: 3}
`);
    expect(options).toMatchObject({
      model: ['m.gguf'],
      port: 9000,
      maxModelLen: 4000,
      kvCacheMemory: 2 * 1024 ** 3,
      enablePrefixCaching: false,
      enableFaultInjection: true,
      apiKey: ['0123', 'b#c', '1e3'],
      servedModelName: ['one'],
      allowedOrigins: ['https://a.example', 'https://b.example'],
      cpus: [0, 2, 3],
      numerics: 'fast',
      sslCertReqs: '0',
      seed: 7,
      kvTransferConfig:
        '{"kv_connector":"SharedStorageConnector","kv_connector_extra_config":{"shared_storage_path":"/kv","n":3}}',
      host: '127.0.0.1',
    });
    expect(await read('no-enable-prefix-caching: true')).toMatchObject({ enablePrefixCaching: false });
    expect(await read('kv-tier: [host:1GiB, disk:/kv:2GiB]')).toMatchObject({ kvTier: ['host:1GiB', 'disk:/kv:2GiB'] });
    expect(await read('port: &x 9\nmax-waiting: *x')).toMatchObject({ port: 9, maxWaiting: 9 });
  });

  it('gives way to the command line, also for flags that may be repeated', async () => {
    const yaml = 'model: file.gguf\nport: 1\napi-key: [a, b]\nenable-prefix-caching: false\n';
    expect(await read(yaml, 'line.gguf', '--port', '2', '--api-key', 'c', '--enable-prefix-caching')).toMatchObject({
      model: ['line.gguf'],
      port: 2,
      apiKey: ['c'],
      enablePrefixCaching: true,
    });
    // Also if the command line gives the default.
    expect(await read('port: 1', '--port', '8000')).toMatchObject({ port: 8000 });
  });

  it('may be empty', async () => {
    expect(await read('')).toMatchObject({ port: 8000 });
    expect(await read('# nothing\n')).toMatchObject({ port: 8000 });
  });

  it.each([
    ['port: 70000', '`port`: It must be a whole number from 0 to 65535'],
    ['port:', '`port`: It has no value'],
    ['port: [1, 2]', '`port`: It must be a whole number'],
    ['numerics: quick', '`numerics`: Allowed choices are exact, fast'],
    ['numerics: [exact, fast]', '`numerics`: Allowed choices are exact, fast'],
    ['prot: 1', '`prot`: There is no such flag. Did you mean `port`?'],
    ['max-model-length: 1', 'Did you mean `max-model-len`?'],
    ['config: other.yaml', '`config`: There is no such flag.'],
    ['enable-prefix-caching: 1', '`enable-prefix-caching`: It must be true or false'],
    ['model: true', '`model`: It must be a path or a name'],
    ['api-key: [{a: 1}, true]', '`api-key`: It must be a list of texts'],
    ['port: 1\nport: 2', 'Map keys must be unique'],
    ['port: {', 'it is not YAML'],
    ['- port', 'it must have a line `name: value` for each flag'],
    ['9000', 'it must have a line'],
  ])('is refused with code 2 and the reason: %j', async (yaml, reason) => {
    writeFileSync(path, yaml);
    const { code, stderr } = await runHere(['serve', '--config', path]);
    expect(stderr).toContain(`error: The configuration file ${path} is wrong: `);
    expect(stderr).toContain(reason);
    expect(code).toBe(2);
  });

  it('that cannot be read is an error', async () => {
    const { code, stderr } = await runHere(['serve', '--config', join(folder, 'none.yaml')]);
    expect(stderr).toContain('Cannot read the configuration file');
    expect(code).toBe(1);
  });
});
