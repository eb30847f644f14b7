import { redisClientMissing } from '../../errors.ts';
import type { RedisUrl } from './redis-url.ts';
import { closeAtStrayAnswers } from './stray-answers.ts';

/**
 * The part of ioredis that the tier uses. iovalkey has it too. A client connects once: after `end` it is not used any
 * more (`RedisConnection` creates another). Answers have no types, because they come from outside.
 */
export interface RedisClient {
  on(event: 'ready' | 'end', listener: () => void): unknown;
  on(event: 'error', listener: (error: Error) => void): unknown;
  on(event: '+node', listener: (node: object) => void): unknown;
  connect(): Promise<unknown>;
  disconnect(): void;
  exists(...keys: string[]): Promise<unknown>;
  /** The value; with `EX`, its time to live begins again. */
  getexBuffer(key: string): Promise<unknown>;
  getexBuffer(key: string, unit: 'EX', seconds: number): Promise<unknown>;
  set(key: string, value: Buffer | string, unit: 'EX', seconds: number): Promise<unknown>;
  sendCommand(command: RedisCommand): Promise<unknown>;
  expire(key: string, seconds: number): Promise<unknown>;
  unlink(key: string): Promise<unknown>;
  scan(cursor: string, match: 'MATCH', pattern: string, count: 'COUNT', keys: number): Promise<unknown>;
  object(what: 'IDLETIME', key: string): Promise<unknown>;
  getrangeBuffer(key: string, first: number, last: number): Promise<unknown>;
  /** Of a cluster: the clients of its nodes. */
  nodes?(role: 'master'): readonly RedisClient[];
}

/** A command whose bytes can be given. */
export interface RedisCommand {
  toWritable: () => Buffer;
}

export interface RedisLibrary {
  readonly Command: new (name: string, args: string[], options: object) => RedisCommand;
  readonly Redis: new (options: object) => RedisClient;
  readonly Cluster: new (addresses: readonly object[], options: object) => RedisClient;
}

/** The tested version, which the message about a missing package names. */
const packageName = 'ioredis@6.0.0';

/** @throws KvasirError `redisClientMissing`. */
export async function loadRedisLibrary(load: () => Promise<unknown> = () => import('ioredis')): Promise<RedisLibrary> {
  try {
    return (await load()) as RedisLibrary;
  } catch (error) {
    const isMissing = (error as { code?: unknown }).code === 'ERR_MODULE_NOT_FOUND';
    const reason = isMissing ? 'it is not installed' : `it cannot be loaded (${(error as Error).message})`;
    throw redisClientMissing({ reason, package: packageName });
  }
}

/** How long a closed socket may take to send its last bytes. */
const disconnectTimeoutMs = 500;
/** A cluster's client learns of nodes that came back after this time. */
const slotsRefreshIntervalMs = 2_000;

/**
 * A client that is not connected yet. It neither retries nor queues: a command that it cannot send or that gets no answer
 * in `timeoutMs` is rejected. A socket that receives nothing for `timeoutMs` although commands wait for answers is
 * closed, so a server that hangs keeps neither memory nor the connection. `connector` makes the sockets; default: the client.
 */
export function newRedisClient(
  { Redis, Cluster }: RedisLibrary,
  url: RedisUrl,
  timeoutMs: number,
  connector?: new (options: never) => object,
): RedisClient {
  const options = {
    username: url.username,
    password: url.password,
    connectTimeout: timeoutMs,
    commandTimeout: timeoutMs,
    socketTimeout: timeoutMs,
    disconnectTimeout: disconnectTimeoutMs,
    keepAlive: 30_000,
    lazyConnect: true,
    retryStrategy: () => null,
    maxRetriesPerRequest: 0,
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    // The probe of `RedisConnection` replaces the check, which needs permission for INFO.
    enableReadyCheck: false,
    disableClientInfo: true,
    connectionName: 'kvasir',
    // Version 3 of the protocol brings nothing here, and versions of Redis before 6 refuse it.
    protocol: 2,
    ...(url.isTls ? { tls: {} } : {}),
    ...(connector === undefined ? {} : { Connector: connector }),
  };
  if (!url.isCluster) {
    const client = new Redis({ ...options, ...url.addresses[0], db: url.database });
    closeAtStrayAnswers(client);
    return client;
  }
  const cluster = new Cluster(url.addresses, {
    redisOptions: options,
    lazyConnect: true,
    clusterRetryStrategy: () => null,
    enableOfflineQueue: false,
    enableReadyCheck: false,
    maxRedirections: 3,
    retryDelayOnFailover: 0,
    retryDelayOnClusterDown: 0,
    slotsRefreshTimeout: timeoutMs,
    slotsRefreshInterval: slotsRefreshIntervalMs,
    // Certificates are for names, so the names are not replaced by addresses.
    ...(url.isTls ? { dnsLookup: keepName } : {}),
  });
  cluster.on('+node', closeAtStrayAnswers);
  return cluster;
}

const keepName = (name: string, done: (error: null, address: string) => void): void => done(null, name);
