import type { JsonObject } from '../../base/json.ts';
import { didYouMean } from '../../base/nearest-name.ts';
import { kvEventsConfigInvalid } from './errors.ts';

/** vLLM's `--kv-events-config` in camelCase, and `eventFormat`. */
export interface KvEventsConfig {
  /** Default false: nothing is recorded. */
  readonly enableKvCacheEvents?: boolean;
  /** Default `zmq` if events are enabled. */
  readonly publisher?: 'zmq' | 'null';
  /**
   * Of the PUB socket. As in vLLM: it binds if the address has `*` or `::`, or is `ipc://` or `inproc://`, and connects otherwise.
   * Default `tcp://*:5557`.
   */
  readonly endpoint?: string;
  /** Of the ROUTER socket, which binds. Default: none. */
  readonly replayEndpoint?: string;
  /** Batches that can be replayed. Default 10,000. */
  readonly bufferSteps?: number;
  /** Batches that wait for each subscriber; 0: no limit. Default 100,000. */
  readonly hwm?: number;
  /** Batches that wait to be sent. Default 100,000. */
  readonly maxQueueSize?: number;
  /** Default: the empty topic. */
  readonly topic?: string;
  /** `map`: events as vLLM sends them since June 2026. `array`: as before. Default `map`. */
  readonly eventFormat?: EventFormat;
}

export type EventFormat = 'map' | 'array';

/** The settings of the publisher. */
export interface PublisherSettings {
  readonly endpoint: string;
  readonly replayEndpoint: string | undefined;
  readonly bufferSteps: number;
  readonly hwm: number;
  readonly maxQueueSize: number;
  readonly topic: string;
  readonly eventFormat: EventFormat;
}

const keys = [
  'enable_kv_cache_events',
  'publisher',
  'endpoint',
  'replay_endpoint',
  'buffer_steps',
  'hwm',
  'max_queue_size',
  'topic',
  'event_format',
] as const;
type Key = (typeof keys)[number];

/**
 * Reads vLLM's keys, in snake_case or in camelCase. Undefined: events are off.
 * @throws KvasirError `kvEventsConfigInvalid` that names the wrong key.
 */
export function readKvEventsConfig(config: JsonObject | object): PublisherSettings | undefined {
  const given = new Map(Object.entries(config).map(([key, value]) => [snakeCase(key), value as unknown]));
  for (const key of given.keys())
    if (!(keys as readonly string[]).includes(key))
      throw invalid(`there is no key \`${key}\`.${didYouMean(key, keys)} The keys are ${keys.join(', ')}`);
  const value = <T>(key: Key, expected: string, fallback: T, isRight: (value: unknown) => value is T): T => {
    const found = given.get(key) ?? undefined;
    if (found === undefined) return fallback;
    if (isRight(found)) return found;
    throw invalid(`\`${key}\` must be ${expected}, got ${JSON.stringify(found)}`);
  };
  const count = (key: Key, min: number, fallback: number): number =>
    value(key, `a whole number of at least ${min}`, fallback, isIntegerFrom(min));
  const isEnabled = value<boolean>('enable_kv_cache_events', 'true or false', false, isBoolean);
  const publisher = value<'zmq' | 'null'>(
    'publisher',
    '"zmq" or "null"',
    isEnabled ? 'zmq' : 'null',
    isOneOf('zmq', 'null'),
  );
  const settings: PublisherSettings = {
    endpoint: value('endpoint', addressText, 'tcp://*:5557', isAddress),
    replayEndpoint: value<string | undefined>('replay_endpoint', addressText, undefined, isAddress),
    bufferSteps: count('buffer_steps', 0, 10_000),
    hwm: count('hwm', 0, 100_000),
    maxQueueSize: count('max_queue_size', 1, 100_000),
    topic: value('topic', 'a text', '', isText),
    eventFormat: value('event_format', '"map" or "array"', 'map', isOneOf('map', 'array')),
  };
  return isEnabled && publisher === 'zmq' ? Object.freeze(settings) : undefined;
}

/** @throws KvasirError `kvEventsConfigInvalid`. */
export function parseKvEventsConfig(text: string): KvEventsConfig {
  let config: unknown;
  try {
    config = JSON.parse(text);
  } catch {
    throw invalid('it is not JSON');
  }
  if (typeof config !== 'object' || config === null || Array.isArray(config)) throw invalid('it is not a JSON object');
  readKvEventsConfig(config);
  return config;
}

const addressText = 'an address of ZeroMQ, like "tcp://*:5557"';
const isBoolean = (value: unknown): value is boolean => typeof value === 'boolean';
const isText = (value: unknown): value is string => typeof value === 'string';
/** ZeroMQ itself takes the port 99999 for another one. */
function isAddress(value: unknown): value is string {
  if (!isText(value)) return false;
  const port = /^tcp:\/\/.+:(\*|\d+)$/.exec(value)?.[1];
  return port === undefined ? /^(ipc|inproc):\/\/./.test(value) : port === '*' || Number(port) <= 65_535;
}

const isIntegerFrom =
  (min: number) =>
  (value: unknown): value is number =>
    typeof value === 'number' && Number.isSafeInteger(value) && value >= min && value <= 2 ** 31 - 1;
const isOneOf =
  <T extends string>(...choices: readonly T[]) =>
  (value: unknown): value is T =>
    (choices as readonly unknown[]).includes(value);

const snakeCase = (key: string): string => key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
const invalid = (problem: string) => kvEventsConfigInvalid({ problem });
