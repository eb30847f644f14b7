import { resolve } from 'node:path';
import { formatBytes, parseBytes } from '../../base/bytes.ts';
import type { JsonObject } from '../../base/json.ts';
import { didYouMean } from '../../base/nearest-name.ts';
import { tierSpecInvalid } from '../errors.ts';
import { type EvictionPolicyName, evictionPolicyNames } from '../tier/host/eviction-policies.ts';

/** Memory of this machine, the first tier. */
export interface HostSpec {
  readonly kind: 'host';
  /** Of all ranks together. */
  readonly maxBytes: number;
  readonly evictionPolicy: EvictionPolicyName;
  /** Blocks expire so long after their last use. Absent: never. */
  readonly ttlSeconds?: number;
  /** Of the blocks of one cache salt, of all ranks together. Absent: no bound but `maxBytes`. */
  readonly quotaBytes?: number;
}

/** A directory, on this machine or on a network file system. */
export interface DiskSpec {
  readonly kind: 'disk';
  readonly path: string;
  /** Of all ranks together. */
  readonly maxBytes: number;
  readonly fsync: boolean;
  readonly directIo: boolean;
  readonly readThreads: number;
  readonly writeThreads: number;
  /** Blocks expire so long after their last use. Absent: never. */
  readonly ttlSeconds?: number;
  /** Of the blocks of one cache salt, of all ranks together. Absent: no bound but `maxBytes`. */
  readonly quotaBytes?: number;
}

/** A Redis or Valkey server, or a cluster of them. */
export interface RedisSpec {
  readonly kind: 'redis';
  readonly url: string;
  readonly ttlSeconds?: number;
}

/** A bucket of an S3-compatible store. */
export interface S3Spec {
  readonly kind: 's3';
  readonly bucket: string;
  readonly prefix?: string;
  readonly endpoint?: string;
  readonly region?: string;
  readonly forcePathStyle?: boolean;
  readonly maxBytes?: number;
  readonly credentials?: {
    readonly accessKeyId: string;
    readonly secretAccessKey: string;
    readonly sessionToken?: string;
  };
}

/** A tier of the user's: a class that a module exports. */
export interface OwnSpec {
  readonly kind: 'own';
  readonly className: string;
  readonly modulePath: string;
  readonly locality: 'LOCAL' | 'REMOTE';
  /** The class checks them. */
  readonly settings: JsonObject;
}

export type BuiltInSpec = DiskSpec | RedisSpec | S3Spec;
export type SecondarySpec = BuiltInSpec | OwnSpec;
/** A tier that a text can name. */
export type TextSpec = HostSpec | BuiltInSpec;
export type TierSpec = HostSpec | SecondarySpec;

const GIB = 1024 ** 3;
export const diskDefaults = {
  maxBytes: 16 * GIB,
  fsync: false,
  directIo: false,
  readThreads: 4,
  writeThreads: 2,
} as const;

const kinds = ['host', 'disk', 'redis', 'rediss', 'valkey', 'valkeys', 's3'] as const;

/**
 * Reads a tier as it is written on the command line:
 *
 *   host:8GiB
 *   disk:/var/cache/kvasir:100GiB?ttl=86400&quota=10GiB
 *   redis://user:password@host:6379/0?ttl=86400
 *   s3://bucket/prefix?endpoint=http://host:9000&region=us-east-1
 *
 * @throws KvasirError `tierSpecInvalid` with the text, the reason and an example.
 */
export function parseTierSpec(text: string): TextSpec {
  const kind = /^[^:]*/.exec(text)![0];
  const rest = text.slice(kind.length + 1);
  switch (kind) {
    case 'host':
      return parseHost(text, rest);
    case 'disk':
      return parseDisk(text, rest);
    case 'redis':
    case 'rediss':
    case 'valkey':
    case 'valkeys':
      return parseRedis(text);
    case 's3':
      return parseS3(text);
    default: {
      const hint = didYouMean(kind, kinds);
      throw invalid(text, `there is no tier \`${kind}\`.${hint} The tiers are host, disk, redis and s3`);
    }
  }
}

/** A tier that is attached below host memory. @throws KvasirError `tierSpecInvalid` */
export function secondarySpec(text: string): BuiltInSpec {
  const spec = parseTierSpec(text);
  if (spec.kind === 'host') throw invalid(text, 'the host tier cannot be attached: each server has one');
  return spec;
}

/** The tier in a few words, without passwords. */
export function describeTier(spec: TierSpec): string {
  switch (spec.kind) {
    case 'host':
      return `host memory, ${formatBytes(spec.maxBytes)}`;
    case 'disk':
      return `disk ${spec.path}, ${formatBytes(spec.maxBytes)}`;
    case 'redis':
      return withoutPassword(spec.url);
    case 's3':
      return `s3://${spec.bucket}/${spec.prefix ?? ''}`;
    case 'own':
      return `${spec.className} of ${spec.modulePath}`;
  }
}

/** The store of the tier, as in `KvConnector.stores`. A class of the user's has stores that are not known. */
export function storeOf(spec: SecondarySpec): string | undefined {
  switch (spec.kind) {
    case 'disk':
      return `disk ${resolve(spec.path)}`;
    case 'redis':
      return `redis ${spec.url.replace(/\?.*$/, '').replace(/^\w+:\/\/(.*@)?|\/$/g, '')}`;
    case 's3':
      return `s3 ${spec.endpoint ?? ''} ${spec.bucket}/${spec.prefix ?? ''}`;
    case 'own':
      return undefined;
  }
}

/**
 * A name for each tier, for logs, counters and `FoundBlock.place`: its kind or class, numbered from the second of a name
 * on.
 */
export function tierNames(specs: readonly SecondarySpec[]): string[] {
  const counts = new Map<string, number>();
  return specs.map((spec) => {
    const name = spec.kind === 'own' ? spec.className : spec.kind;
    const count = (counts.get(name) ?? 0) + 1;
    counts.set(name, count);
    return count === 1 ? name : `${name}-${count}`;
  });
}

function parseHost(text: string, given: string): HostSpec {
  const { rest, ...rules } = takeRules(text, given);
  const [size, policy = 'lru', ...more] = rest.split(':');
  const maxBytes = parseBytes(size ?? '');
  if (maxBytes === undefined || more.length > 0) throw invalid(text, 'it needs a size, as in host:8GiB');
  const evictionPolicy = evictionPolicyNames.find((name) => name === policy);
  if (evictionPolicy === undefined) throw invalid(text, `the eviction policy is lru or arc, not \`${policy}\``);
  return { kind: 'host', maxBytes, evictionPolicy, ...rules };
}

function parseDisk(text: string, given: string): DiskSpec {
  const { rest, ...rules } = takeRules(text, given);
  // A path may contain colons, so only a size after the last colon is a size.
  const at = rest.lastIndexOf(':');
  const size = at < 0 ? undefined : parseBytes(rest.slice(at + 1));
  const path = size === undefined ? rest : rest.slice(0, at);
  if (path === '') throw invalid(text, 'it needs a directory, as in disk:/var/cache/kvasir:100GiB');
  return { kind: 'disk', ...diskDefaults, path, ...(size === undefined ? {} : { maxBytes: size }), ...rules };
}

interface GivenRules {
  readonly rest: string;
  readonly ttlSeconds?: number;
  readonly quotaBytes?: number;
}

/** `?ttl=` and `quota=` at the end of a text that is no URL. Another `?` is part of a path. */
function takeRules(text: string, given: string): GivenRules {
  const [, rest, query] = /^(.*)\?((?:ttl|quota)=[^?]*)$/.exec(given) ?? [];
  if (rest === undefined) return { rest: given };
  const rules: { ttlSeconds?: number; quotaBytes?: number } = {};
  for (const rule of query!.split('&')) {
    const [, name, value] = /^(ttl|quota)=(.*)$/.exec(rule) ?? [];
    if (name === 'ttl') rules.ttlSeconds = secondsOf(text, value!);
    else if (name === 'quota') rules.quotaBytes = quotaOf(text, value!);
    else throw invalid(text, `after ? there are ttl and quota, as in ?ttl=3600&quota=1GiB, not \`${rule}\``);
  }
  return { rest, ...rules };
}

function quotaOf(text: string, size: string): number {
  const bytes = parseBytes(size);
  if (bytes !== undefined) return bytes;
  throw invalid(text, `quota is a size like 1GiB, not \`${size}\``);
}

function secondsOf(text: string, ttl: string): number {
  const seconds = Number(ttl);
  if (Number.isSafeInteger(seconds) && seconds >= 1) return seconds;
  throw invalid(text, `ttl is a number of seconds of at least 1, not \`${ttl}\``);
}

/** The tier itself reads the rest of the URL, which may have several addresses. */
function parseRedis(text: string): RedisSpec {
  if (!/^\w+:\/\/[^/?]+/.test(text)) throw invalid(text, 'it is a URL, as in redis://host:6379');
  if (/[?&]quota=/.test(text))
    throw invalid(
      text,
      'there is no quota in Redis: the server evicts by its own policy, which does not count blocks by cache salt. Quotas are for host and disk',
    );
  const ttl = /[?&]ttl=([^&]*)/.exec(text);
  if (ttl === null) return { kind: 'redis', url: text };
  const ttlSeconds = secondsOf(text, ttl[1]!);
  const others = text.replace(/([?&])ttl=[^&]*&?/, '$1').replace(/[?&]$/, '');
  return { kind: 'redis', url: others, ttlSeconds };
}

const s3Parameters = ['endpoint', 'region', 'path_style', 'max_bytes'] as const;

function parseS3(text: string): S3Spec {
  const url = urlOf(text, 's3://bucket/prefix?endpoint=http://host:9000');
  if (url.searchParams.has('quota'))
    throw invalid(
      text,
      'there is no quota in S3: an object has blocks of several cache salts, and a bucket removes objects by its own rules. Quotas are for host and disk',
    );
  for (const name of url.searchParams.keys()) {
    if ((s3Parameters as readonly string[]).includes(name)) continue;
    const hint = didYouMean(name, s3Parameters);
    throw invalid(text, `there is no parameter \`${name}\`.${hint} The parameters are ${s3Parameters.join(', ')}`);
  }
  if (url.username !== '' || url.password !== '')
    throw invalid(text, 'credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, not from the URL');
  const endpoint = url.searchParams.get('endpoint');
  const region = url.searchParams.get('region');
  const pathStyle = url.searchParams.get('path_style');
  const size = url.searchParams.get('max_bytes');
  const maxBytes = size === null ? undefined : parseBytes(size);
  if (size !== null && maxBytes === undefined) throw invalid(text, `max_bytes is a size like 1TiB, not \`${size}\``);
  if (endpoint !== null && !URL.canParse(endpoint)) throw invalid(text, `endpoint is a URL, not \`${endpoint}\``);
  if (pathStyle !== null && pathStyle !== 'true' && pathStyle !== 'false')
    throw invalid(text, `path_style is true or false, not \`${pathStyle}\``);
  const prefix = decodeURIComponent(url.pathname).replace(/^\/+|\/+$/g, '');
  return {
    kind: 's3',
    bucket: url.hostname,
    ...(prefix === '' ? {} : { prefix }),
    ...(endpoint === null ? {} : { endpoint }),
    ...(region === null ? {} : { region }),
    ...(pathStyle === null ? {} : { forcePathStyle: pathStyle === 'true' }),
    ...(maxBytes === undefined ? {} : { maxBytes }),
  };
}

function urlOf(text: string, example: string): URL {
  // `URL.parse` does not exist in Node 20.
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || url.hostname === '') throw invalid(text, `it is a URL, as in ${example}`);
  return url;
}

/** A password may contain any character, so everything up to the last `@` is left out. */
const withoutPassword = (text: string): string => text.replace(/^((?:rediss?|valkeys?|s3):(?:\/\/)?).*@/, '$1');

const invalid = (text: string, reason: string) => tierSpecInvalid({ tier: withoutPassword(text), reason });
