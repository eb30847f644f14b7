import { InvalidArgumentError } from 'commander';
import { didYouMean } from '../base/nearest-name.ts';
import type { KeyLimit } from '../server/http/key-queues.ts';

/** `--api-key-limits`: limits by the name of a key; `*`: of each key of `--api-key`. */
export type KeyLimitFlags = ReadonlyMap<string, Omit<KeyLimit, 'name' | 'key'> & { readonly key?: string }>;

const forEachKey = '*';
const fieldNames = ['key', 'max_running', 'max_waiting', 'admin'];

/** `{"team-a": {"key": "...", "max_running": 4, "max_waiting": 16}}` */
export function keyLimitsFlag(text: string): KeyLimitFlags {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    throw new InvalidArgumentError('It must be JSON.');
  }
  const limits = new Map(Object.entries(objectOf(json, 'It')).map(([name, entry]) => [name, limitOf(name, entry)]));
  const keys = [...limits.values()].flatMap(({ key }) => key ?? []);
  if (new Set(keys).size < keys.length) throw new InvalidArgumentError('Two names have the same key.');
  return limits;
}

function limitOf(name: string, entry: unknown) {
  if (name !== forEachKey && !/^[\w.-]{1,64}$/.test(name))
    throw new InvalidArgumentError(`The name \`${name}\` must be letters, digits, _, . and -, or *.`);
  const fields = objectOf(entry, `\`${name}\``);
  const unknown = Object.keys(fields).find((field) => !fieldNames.includes(field));
  if (unknown !== undefined)
    throw new InvalidArgumentError(`\`${name}\` has no field \`${unknown}\`.${didYouMean(unknown, fieldNames)}`);
  const { key, max_running: maxRunning, max_waiting: maxWaiting = 0, admin: isAdmin = false } = fields;
  if (typeof isAdmin !== 'boolean' || (isAdmin && name === forEachKey))
    throw new InvalidArgumentError(`\`${name}\`: admin must be true or false, and only a key with a name can have it.`);
  if (maxRunning === undefined && isAdmin && fields.max_waiting === undefined)
    return { key: keyOf(name, key), isAdmin };
  if (!isCount(maxRunning) || maxRunning < 1)
    throw new InvalidArgumentError(`\`${name}\`: max_running must be a whole number of at least 1.`);
  if (!isCount(maxWaiting))
    throw new InvalidArgumentError(`\`${name}\`: max_waiting must be a whole number of at least 0.`);
  if (name === forEachKey) {
    if (key === undefined) return { maxRunning, maxWaiting };
    throw new InvalidArgumentError('`*` has no key: its limits are those of each key of --api-key.');
  }
  return { key: keyOf(name, key), maxRunning, maxWaiting, isAdmin };
}

function keyOf(name: string, key: unknown): string {
  if (typeof key === 'string' && /^[^\s]+$/.test(key)) return key;
  throw new InvalidArgumentError(`\`${name}\`: key must be a text without spaces.`);
}

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && Number(value) >= 0;

function objectOf(value: unknown, what: string): Record<string, unknown> {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return { ...value };
  throw new InvalidArgumentError(
    `${what} must be an object, like {"team-a":{"key":"...","max_running":4,"max_waiting":16}}.`,
  );
}

/** The limits with their keys. The n-th key of `--api-key` has the name `api-key-n`. */
export function keyLimitsOf(flags: KeyLimitFlags, apiKeys: readonly string[] = []): readonly KeyLimit[] {
  const named = [...flags].flatMap(([name, { key, ...limit }]) => (key === undefined ? [] : [{ name, key, ...limit }]));
  const common = flags.get(forEachKey);
  if (common === undefined) return named;
  const own = new Set(named.map(({ key }) => key));
  const others = apiKeys
    .map((key, i) => ({ ...common, name: `api-key-${i + 1}`, key }))
    .filter(({ key }) => !own.has(key));
  return [...named, ...others];
}
