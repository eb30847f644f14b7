import { type FieldFault, FieldReader, inSnakeCase } from '../../base/field-reader.ts';
import { parseJsonObject } from '../../base/json.ts';
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

/**
 * Reads vLLM's keys, in snake_case or in camelCase. Undefined: events are off.
 * @throws KvasirError `kvEventsConfigInvalid` that names the wrong key.
 */
export function readKvEventsConfig(config: object): PublisherSettings | undefined {
  const reader = new FieldReader(inSnakeCase(config, twice), configError);
  const count = (key: string, min: number, fallback: number): number =>
    reader.integer(key, { min, max: 2 ** 31 - 1 }) ?? fallback;
  const isEnabled = reader.boolean('enable_kv_cache_events') ?? false;
  const publisher = reader.choice('publisher', ['zmq', 'null']) ?? 'zmq';
  const settings: PublisherSettings = {
    endpoint: readAddress(reader, 'endpoint') ?? 'tcp://*:5557',
    replayEndpoint: readAddress(reader, 'replay_endpoint'),
    bufferSteps: count('buffer_steps', 0, 10_000),
    hwm: count('hwm', 0, 100_000),
    maxQueueSize: count('max_queue_size', 1, 100_000),
    topic: reader.string('topic') ?? '',
    eventFormat: reader.choice('event_format', ['map', 'array']) ?? 'map',
  };
  reader.finish();
  return isEnabled && publisher === 'zmq' ? Object.freeze(settings) : undefined;
}

/** @throws KvasirError `kvEventsConfigInvalid`. */
export function parseKvEventsConfig(text: string): KvEventsConfig {
  const config = parseJsonObject(text, (problem) => kvEventsConfigInvalid({ problem }));
  readKvEventsConfig(config);
  return config;
}

/** ZeroMQ itself takes the port 99999 for another one. */
function readAddress(reader: FieldReader, key: string): string | undefined {
  const address = reader.string(key);
  const port = /^tcp:\/\/.+:(\*|\d+)$/.exec(address ?? '')?.[1];
  const isRight =
    port === undefined ? /^(ipc|inproc):\/\/./.test(address ?? '') : port === '*' || Number(port) <= 65_535;
  if (address === undefined || isRight) return address;
  throw reader.invalid(key, 'an address of ZeroMQ, like "tcp://*:5557"');
}

const twice = (key: string): Error => kvEventsConfigInvalid({ problem: `\`${key}\` is given in two spellings` });

function configError(fault: FieldFault): Error {
  const { kind, parameter, actual } = fault;
  if (kind === 'unknown') {
    const { nearest, known } = fault;
    const hint = nearest === undefined ? '' : ` Did you mean \`${nearest}\`?`;
    return kvEventsConfigInvalid({
      problem: `there is no key \`${parameter}\`.${hint} The keys are ${known.join(', ')}`,
    });
  }
  const expected = kind === 'unsupported' ? 'absent' : fault.expected;
  return kvEventsConfigInvalid({ problem: `\`${parameter}\` must be ${expected}, got ${actual}` });
}
