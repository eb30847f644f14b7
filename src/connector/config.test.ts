import { describe, expect, it } from 'vitest';
import { parseKvTransferConfig, readKvTransferConfig, takeDottedFlags } from './config.ts';
import { configReader } from './config-reader.ts';

const minimal = '{"kv_connector":"SharedStorageConnector","kv_role":"kv_both"}';

describe('--kv-transfer-config', () => {
  it('reads the JSON of vLLM and fills in the defaults', () => {
    expect(parseKvTransferConfig(minimal)).toEqual({
      kvConnector: 'SharedStorageConnector',
      kvRole: 'kv_both',
      kvConnectorExtraConfig: {},
      kvLoadFailurePolicy: 'recompute',
    });
    const full = parseKvTransferConfig(`{
      "kv_connector": "Mine", "kv_role": "kv_consumer", "kv_connector_extra_config": {"a": {"b": [1, 2]}},
      "kv_connector_module_path": "./mine.js", "kv_load_failure_policy": "fail", "engine_id": "e1"
    }`);
    expect(full).toEqual({
      kvConnector: 'Mine',
      kvRole: 'kv_consumer',
      kvConnectorExtraConfig: { a: { b: [1, 2] } },
      kvConnectorModulePath: './mine.js',
      kvLoadFailurePolicy: 'fail',
      engineId: 'e1',
    });
    expect(Object.isFrozen(full)).toBe(true);
    expect(Object.isFrozen(full!.kvConnectorExtraConfig.a)).toBe(true);
  });

  it('without any flag is undefined', () => {
    expect(parseKvTransferConfig(undefined)).toBeUndefined();
  });

  it('accepts camelCase from programs', () => {
    const config = readKvTransferConfig({ kvConnector: 'X', kvRole: 'kv_producer', kvLoadFailurePolicy: 'fail' });
    expect(config).toMatchObject({ kvConnector: 'X', kvRole: 'kv_producer', kvLoadFailurePolicy: 'fail' });
  });

  it('takes dotted flags out of a command line and prefers them to the JSON', () => {
    const { rest, dotted } = takeDottedFlags([
      'serve',
      '--kv-transfer-config.kv-role',
      'kv_consumer',
      '--port',
      '1',
      '--kv-transfer-config.kv_connector_extra_config.shared_storage_path=/a=b',
      '--kv-transfer-config.kv_connector_extra_config.fsync=true',
      '--',
      '--kv-transfer-config.kv_role',
    ]);
    expect(rest).toEqual(['serve', '--port', '1', '--', '--kv-transfer-config.kv_role']);
    expect(parseKvTransferConfig(minimal, dotted)).toMatchObject({
      kvRole: 'kv_consumer',
      kvConnectorExtraConfig: { shared_storage_path: '/a=b', fsync: true },
    });
    expect(parseKvTransferConfig(undefined, [{ path: ['kv_connector'], value: 'A' }, dotted[0]!])).toMatchObject({
      kvConnector: 'A',
    });
  });

  it.each<[string, RegExp]>([
    ['{', /not JSON/],
    ['[]', /not JSON.*it is \[\]/],
    ['{"kv_role":"kv_both"}', /`kv_connector` must be the name of a connector.*got nothing/],
    ['{"kv_connector":"","kv_role":"kv_both"}', /`kv_connector` must be a non-empty string/],
    ['{"kv_connector":"A"}', /`kv_role` must be one of kv_producer, kv_consumer, kv_both, got nothing/],
    ['{"kv_connector":"A","kv_role":"both"}', /got "both"/],
    ['{"kv_connector":"A","kv_role":"kv_bth"}', /Did you mean `kv_both`/],
    ['{"kv_connector":"A","kv_role":"kv_both","kv_load_failure_policy":"retry"}', /"recompute" or "fail", got "retry"/],
    ['{"kv_connector":"A","kv_role":"kv_both","kv_connector_extra_config":3}', /must be an object, got 3/],
    ['{"kv_connector":"A","kv_role":"kv_both","kv_connector_module_path":""}', /kv_connector_module_path/],
    [
      '{"kv_connecter":"A","kv_role":"kv_both"}',
      /no such setting.*Did you mean `kv_connector`\? Settings of the connector itself/,
    ],
    ['{"kv_connector":"A","kvConnector":"B","kv_role":"kv_both"}', /given once/],
    ['{"kv_connector":"A","kv_role":"kv_both","kv_port":14579}', /no such setting: it would change nothing/],
  ])('%s is refused with a reason', (json, message) => {
    expect(() => parseKvTransferConfig(json)).toThrow(message);
  });

  it('refuses dotted flags without a value or with an impossible path', () => {
    expect(() => takeDottedFlags(['--kv-transfer-config.kv_role'])).toThrow(/kv_role.*followed by a value/);
    const flag = (path: string) => [{ path: path.split('.'), value: '1' }];
    expect(() => parseKvTransferConfig(minimal, flag('kv_role.x'))).toThrow(/`kv_role` must be an object/);
    expect(() => parseKvTransferConfig(minimal, flag('kv_connector_extra_config..x'))).toThrow(/no empty part/);
    expect(() => parseKvTransferConfig(minimal, flag('kv_connector_extra_config.__proto__.x'))).toThrow();
  });
});

describe('kv_connector_extra_config', () => {
  const of = (raw: Record<string, string | number | boolean | null>) => configReader(raw);

  it('is read field by field', () => {
    const config = of({ path: 'p', fast: true, n: 3, ratio: 0.5, kind: 'b', unset: null });
    expect(config.text('path')).toBe('p');
    expect(config.boolean('fast')).toBe(true);
    expect(config.integer('n', { min: 1 })).toBe(3);
    expect(config.number('ratio', { min: 0, max: 1 })).toBe(0.5);
    expect(config.choice('kind', ['a', 'b'])).toBe('b');
    expect(config.text('unset')).toBeUndefined();
    expect(() => config.finish()).not.toThrow();
  });

  it('errors name the whole path of the wrong field', () => {
    expect(() => of({ n: 0 }).integer('n', { min: 1 })).toThrow(
      /kv_connector_extra_config\.n` must be an integer of at/,
    );
    expect(() => of({ n: 1.5 }).integer('n', { min: 1 })).toThrow(/integer of at least 1, got 1.5/);
    expect(() => of({ a: 'x' }).boolean('a')).toThrow(/true or false, got "x"/);
    expect(() => of({ a: 'x' }).choice('a', ['y'])).toThrow(/one of y/);
    const config = of({ shared_storage_pth: 'x' });
    config.text('shared_storage_path');
    expect(() => config.finish()).toThrow(/no such setting.*Did you mean `shared_storage_path`/);
  });
});
