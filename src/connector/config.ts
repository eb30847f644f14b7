import { byName } from '../base/by-name.ts';
import { type FieldReader, inSnakeCase, withoutUndefined } from '../base/field-reader.ts';
import { isJsonObject, type JsonObject, type JsonValue } from '../base/json.ts';
import { configReader } from './config-reader.ts';
import type { KvLoadFailurePolicy, KvRole, KvTransferConfig } from './connector.ts';
import { kvConfigInvalid, kvConfigNotJson } from './errors.ts';

/** Fields of vLLM without an effect in Kvasir. They are refused, because ignoring them would hide that. */
const meaningless = [
  'kv_buffer_device',
  'kv_buffer_size',
  'kv_rank',
  'kv_parallel_size',
  'kv_ip',
  'kv_port',
  'enable_permute_local_kv',
];

const roles: readonly KvRole[] = ['kv_producer', 'kv_consumer', 'kv_both'];
const policies: readonly KvLoadFailurePolicy[] = ['recompute', 'fail'];

/** `--kv-transfer-config.<path> <value>`, split at the dots. */
export interface DottedFlag {
  readonly path: readonly string[];
  readonly value: string;
}

const flagName = '--kv-transfer-config';

/** Takes `--kv-transfer-config.a.b value` (or `=value`) out of a command line; the rest is for the ordinary parser. */
export function takeDottedFlags(argv: readonly string[]): {
  readonly rest: readonly string[];
  readonly dotted: readonly DottedFlag[];
} {
  const rest: string[] = [];
  const dotted: DottedFlag[] = [];
  for (let i = 0; i < argv.length; i++) {
    const argument = argv[i]!;
    if (argument === '--') {
      rest.push(...argv.slice(i));
      break;
    }
    if (!argument.startsWith(`${flagName}.`)) {
      rest.push(argument);
      continue;
    }
    const [name, ...values] = argument.slice(flagName.length + 1).split('=');
    const path = name!.split('.');
    // Like vLLM: dashes in flags mean underscores.
    path[0] = path[0]!.replaceAll('-', '_');
    let value = values.join('=');
    if (values.length === 0) {
      const next = argv[++i];
      if (next === undefined) throw invalid(name!, 'followed by a value', 'nothing');
      value = next;
    }
    dotted.push({ path, value });
  }
  return { rest, dotted };
}

/**
 * Reads `--kv-transfer-config '<json>'` and dotted flags, which take precedence. Undefined when neither is given.
 * @throws KvasirError with the field, the expected value and the actual value.
 */
export function parseKvTransferConfig(
  json: string | undefined,
  dotted: readonly DottedFlag[] = [],
): KvTransferConfig | undefined {
  if (json === undefined && dotted.length === 0) return undefined;
  const raw: Record<string, JsonValue> = byName();
  if (json !== undefined) {
    let value: JsonValue;
    try {
      value = JSON.parse(json) as JsonValue;
    } catch (error) {
      throw kvConfigNotJson({ reason: (error as Error).message }, error);
    }
    if (!isJsonObject(value)) throw kvConfigNotJson({ reason: `it is ${describe(value)}` });
    Object.assign(raw, structuredClone(value));
  }
  for (const flag of dotted) setAt(raw, flag);
  return readKvTransferConfig(raw);
}

/** Of a configuration in a list of connectors. */
interface InList {
  /** Before the names of fields in errors: `kv_connector_extra_config.connectors[0].` */
  readonly path: string;
  /** The configuration of the list, whose role and engine the connector has unless it says otherwise. */
  readonly list: KvTransferConfig;
}

/** Reads the configuration as an object, keys in snake_case or camelCase. */
export function readKvTransferConfig(input: JsonObject, inList?: InList): KvTransferConfig {
  const list = inList?.list;
  const path = inList?.path ?? '';
  const reader = configReader(
    inSnakeCase(input, (name) => invalid(path + name, 'given once', 'two spellings of it')),
    path,
  );
  for (const name of meaningless) reader.refuse(name, () => false, 'it would change nothing');
  const kvConnector = reader.text('kv_connector');
  const kvRole = reader.choice('kv_role', roles);
  const kvConnectorExtraConfig = deepFreeze(structuredClone(reader.json('kv_connector_extra_config') ?? {}));
  const kvConnectorModulePath = reader.text('kv_connector_module_path');
  const engineId = reader.text('engine_id');
  const whole = list === undefined ? wholeOf(reader) : wholeOfList(reader, list);
  // A misspelt name says more than a missing field.
  reader.finish();
  const role = kvRole ?? list?.kvRole ?? reader.requiredChoice('kv_role', roles);
  if (list !== undefined && list.kvRole !== 'kv_both' && role !== list.kvRole)
    throw reader.invalid('kv_role', `\`${list.kvRole}\`, as that of the list, or absent`);
  return Object.freeze({
    kvConnector: reader.required('kv_connector', kvConnector, 'the name of a connector, like "SharedStorageConnector"'),
    kvRole: role,
    kvConnectorExtraConfig,
    ...whole,
    ...withoutUndefined({ kvConnectorModulePath, engineId: engineId ?? list?.engineId }),
  });
}

type WholeFields = Pick<KvTransferConfig, 'kvLoadFailurePolicy' | 'kvTransferKeyFile' | 'kvTransferEncrypt'>;

const wholeOf = (reader: FieldReader): WholeFields => ({
  kvLoadFailurePolicy: reader.choice('kv_load_failure_policy', policies) ?? 'recompute',
  ...withoutUndefined({
    kvTransferKeyFile: reader.text('kv_transfer_key_file'),
    kvTransferEncrypt: reader.boolean('kv_transfer_encrypt'),
  }),
});

/** A rank has one load failure policy and one key file. */
function wholeOfList(reader: FieldReader, list: KvTransferConfig): WholeFields {
  for (const name of ['kv_load_failure_policy', 'kv_transfer_key_file', 'kv_transfer_encrypt'])
    if (reader.raw(name) !== undefined)
      throw reader.invalid(name, 'absent: it is set beside the list, for all connectors');
  const { kvLoadFailurePolicy, kvTransferKeyFile, kvTransferEncrypt } = list;
  return { kvLoadFailurePolicy, ...withoutUndefined({ kvTransferKeyFile, kvTransferEncrypt }) };
}

function setAt(raw: Record<string, JsonValue>, { path, value }: DottedFlag): void {
  let at = raw;
  for (const [depth, name] of path.entries()) {
    if (name === '' || name === '__proto__') throw invalid(path.join('.'), 'a name with no empty part', name);
    if (depth === path.length - 1) {
      at[name] = scalarOf(value);
      return;
    }
    const next = Object.hasOwn(at, name) ? at[name] : undefined;
    if (next !== undefined && !isJsonObject(next)) {
      throw invalid(path.slice(0, depth + 1).join('.'), 'an object', describe(next));
    }
    const inner: Record<string, JsonValue> = byName({ ...next });
    at[name] = inner;
    at = inner;
  }
}

/** Like vLLM: valid JSON is JSON, and everything else is text. */
function scalarOf(text: string): JsonValue {
  try {
    return JSON.parse(text) as JsonValue;
  } catch {
    return text;
  }
}

function deepFreeze<T extends JsonValue>(value: T): T {
  if (typeof value === 'object' && value !== null) {
    Object.freeze(value);
    for (const inner of Object.values(value)) deepFreeze(inner as JsonValue);
  }
  return value;
}

function describe(value: JsonValue | undefined): string {
  if (value === undefined) return 'nothing';
  const text = JSON.stringify(value);
  return text.length > 60 ? `${text.slice(0, 60)}...` : text;
}

const invalid = (parameter: string, expected: string, actual: string): Error =>
  kvConfigInvalid({ parameter, expected, actual, hint: '' });
