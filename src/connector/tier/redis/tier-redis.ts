import { assert } from '../../../base/assert.ts';
import { byName } from '../../../base/by-name.ts';
import { KvasirError } from '../../../base/errors.ts';
import { unlessAborted } from '../../../base/unless-aborted.ts';
import type { BlockKey } from '../../block-key.ts';
import type { Crc32, KvIdentity, MacKeys } from '../../connector.ts';
import { tierClosed, tierFailed } from '../../errors.ts';
import type { MissReason } from '../../reasons.ts';
import type { ClearFilter, TierWork } from '../../tier-orders.ts';
import { BlockCoder } from '../block-coder.ts';
import { headerBytes } from '../block-header.ts';
import { modelFolder, rankFolder } from '../identity.ts';
import type { LookupAnswers } from '../look-up.ts';
import { OpenCalls } from '../open-calls.ts';
import type { StoreAnswer, TamperableTier, TierContext } from '../tier.ts';
import { CallSlots } from './call-slots.ts';
import { clearKeys } from './clear-keys.ts';
import { lookUpByCount } from './count-look-up.ts';
import { loadRedisLibrary, newRedisClient, type RedisClient, type RedisLibrary } from './redis-client.ts';
import { RedisConnection, type RedisRequest } from './redis-connection.ts';
import { codeOfError, textOfError } from './redis-refusals.ts';
import { parseRedisUrl, type RedisUrl } from './redis-url.ts';
import { BlockSinks } from './reply-tap.ts';
import { StoreCommands } from './store-commands.ts';
import { tappedConnector } from './tapped-connector.ts';

export interface RedisTierOptions {
  /** As in `parseRedisUrl`. A password in it is in no message, name or error. */
  readonly url: string;
  readonly identity: KvIdentity;
  readonly name?: string;
  /** A block expires this long after it was stored or last loaded; default one day. */
  readonly ttlSeconds?: number;
  /** How long an answer may take. Then the call fails, and a connection that receives nothing is replaced. Default 5 s. */
  readonly commandTimeoutMs?: number;
  /** Connections for blocks, besides the one for look-ups; default 2. 0: one connection for all calls. */
  readonly connections?: number;
  /** Default: Node's. */
  readonly crc32?: Crc32 | undefined;
  /** Blocks have a MAC, and others are not loaded. */
  readonly macKeys?: MacKeys | undefined;
  /** Default false. True: blocks are encrypted with these keys, and others are not loaded. */
  readonly encrypts?: boolean | undefined;
  /** Receives events for the operator: the server does not answer, or answers again. Absent: events are dropped. */
  readonly event?: (message: string) => void;
}

const daySeconds = 86_400;
const defaultTimeoutMs = 5_000;
const defaultConnections = 2;
/** Commands in flight. More blocks would only wait in the buffers of the server and the client. */
const blocksPerConnection = 4;
/** Servers of a cluster count only keys of one slot together. */
const keysPerLookUp = { server: 64, cluster: 1 } as const;

/**
 * Blocks in a Redis or Valkey server, or in a cluster, for any number of processes at once. The value of a key is the
 * whole stored block: header and payload. The server's memory policy evicts, and blocks without use expire.
 *
 * While the server cannot be reached, each call is rejected at once, and the tier tries to connect in the background.
 */
export class RedisTier implements TamperableTier {
  readonly name: string;
  readonly #url: RedisUrl;
  readonly #event: (message: string) => void;
  readonly #ttlSeconds: number;
  readonly #coder: BlockCoder;
  readonly #keyPrefix: string;
  /** The first one is for look-ups. */
  readonly #connections: readonly RedisConnection[];
  readonly #slots: CallSlots;
  readonly #sinks = new BlockSinks();
  readonly #storeCommands: StoreCommands;
  readonly #calls: OpenCalls;
  readonly #counters: Record<string, number> = byName();
  #isOpen: boolean = false;
  /** What the operator was told last: undefined = the tier is connected. */
  #reported: string | undefined;

  private constructor(options: RedisTierOptions, url: RedisUrl, library: RedisLibrary) {
    const { identity, ttlSeconds = daySeconds, connections = defaultConnections } = options;
    const timeoutMs = options.commandTimeoutMs ?? defaultTimeoutMs;
    assert(Number.isSafeInteger(ttlSeconds) && ttlSeconds > 0, `a time to live of ${ttlSeconds} s`);
    assert(Number.isSafeInteger(connections) && connections >= 0, `${connections} connections`);
    this.name = options.name ?? 'redis';
    this.#url = url;
    this.#event = options.event ?? (() => undefined);
    this.#ttlSeconds = ttlSeconds;
    this.#coder = new BlockCoder({ ...options, name: this.name });
    this.#keyPrefix = `kvasir:${modelFolder(identity)}:${rankFolder(identity)}:`;
    const valueBytes = headerBytes + identity.blockBytes;
    const connector = tappedConnector(valueBytes, this.#sinks);
    const create = (): RedisClient => newRedisClient(library, url, timeoutMs, connector);
    const changed = (): void => this.#report();
    const connection = (): RedisConnection => new RedisConnection({ url, create, changed });
    this.#connections = Array.from({ length: 1 + connections }, connection);
    const callsAtOnce = Math.max(1, connections) * blocksPerConnection;
    this.#slots = new CallSlots(callsAtOnce);
    this.#storeCommands = new StoreCommands(library, { valueBytes, ttlSeconds, freeMax: callsAtOnce });
    this.#calls = new OpenCalls(() => tierClosed({ tier: this.name }));
  }

  /**
   * Opens the tier. A server that cannot be reached is no error: the tier works when the server is there.
   * @throws KvasirError `redisUrlInvalid`, `redisClientMissing`, or `redisRefused` if only a change of settings can help.
   * Examples are a wrong password, a missing permission and a server that is not Redis.
   */
  static async open(options: RedisTierOptions): Promise<RedisTier> {
    const url = parseRedisUrl(options.url);
    const library = await loadRedisLibrary();
    const tier = new RedisTier(options, url, library);
    await Promise.all(tier.#connections.map((connection) => connection.connect()));
    const refusal = tier.#connections.find(({ refusal }) => refusal !== undefined)?.refusal;
    if (refusal !== undefined) {
      await tier.close();
      throw refusal;
    }
    tier.#isOpen = true;
    tier.#report();
    return tier;
  }

  /** The name of a block's key on the server. */
  keyOf(key: BlockKey): string {
    return this.#keyPrefix + key;
  }

  has(keys: readonly BlockKey[], signal: AbortSignal): Promise<LookupAnswers> {
    return this.#calls.run(async () => {
      if (signal.aborted || keys.length === 0) return keys.map(() => undefined);
      const connection = this.#lookUpConnection();
      let failures = 0;
      let failure: unknown;
      const answers = await lookUpByCount(keys, signal, {
        countStored: (group) =>
          connection.send({
            send: (client) => client.exists(...group.map((key) => this.keyOf(key))),
            isAnswer: isCountUpTo(group.length),
          }),
        keysMax: this.#url.isCluster ? keysPerLookUp.cluster : keysPerLookUp.server,
        failed: (error, keyCount) => {
          failures += keyCount;
          failure = error;
        },
      });
      if (failures > 0) this.#count('lookupFailed', failures);
      if (failures === keys.length) throw this.#failed('look up blocks', failure);
      return answers;
    });
  }

  load(key: BlockKey, into: Uint8Array, signal: AbortSignal): Promise<MissReason | undefined> {
    return this.#transfer(signal, async () => {
      const connection = this.#blockConnection('load a block');
      const valueBytes = headerBytes + into.length;
      const { codec } = this.#coder;
      const sink = this.#sinks.add(into, (header) => codec.verifyHeader(key, header, valueBytes) === undefined);
      try {
        let value = await this.#get(key, connection, signal);
        if (value !== null && sink.isFilled && value.length === headerBytes) {
          const reason = await this.#coder.verify(key, value, into, valueBytes);
          return await this.#loaded(key, reason, connection, signal);
        }
        this.#sinks.remove(sink);
        // Another load of the same block got the payload of this answer.
        if (value?.length === headerBytes && codec.verifyHeader(key, value, valueBytes) === undefined)
          value = await this.#get(key, connection, signal);
        // From here on, nothing waits but the verification: after the load has ended, nothing writes `into`.
        if (value !== null) return await this.#loaded(key, await this.#decode(key, value, into), connection, signal);
        this.#count('missing');
        return 'missing';
      } finally {
        this.#sinks.remove(sink);
      }
    });
  }

  store(key: BlockKey, bytes: Uint8Array, signal: AbortSignal, context?: TierContext): Promise<StoreAnswer> {
    return this.#transfer(signal, async () => {
      const connection = this.#blockConnection('store a block');
      const name = this.keyOf(key);
      const { command, release } = await this.#storeCommands.create(name, (value) =>
        this.#coder.encodeInto(key, bytes, value, context),
      );
      const send = async (client: RedisClient): Promise<unknown> => {
        try {
          return await client.sendCommand(command);
        } catch (error) {
          if (error instanceof Error && error.message.startsWith('OOM')) return 'full';
          throw error;
        }
      };
      const answer = await this.#ask('store a block', signal, connection, { send, isAnswer: isStoreAnswer });
      release();
      const stored = answer === 'OK' ? 'stored' : (answer ?? 'alreadyStored');
      this.#count(stored);
      if (stored === 'alreadyStored') this.#refresh(name, connection);
      return stored;
    });
  }

  delete(key: BlockKey): Promise<void> {
    return this.#calls.run(async () => {
      const connection = this.#blockConnection('delete a block');
      const send = (client: RedisClient): Promise<unknown> => client.unlink(this.keyOf(key));
      await this.#ask('delete a block', undefined, connection, { send, isAnswer: isCountUpTo(1) });
    });
  }

  /** By the time of the last command for the key, which the server counts in seconds. */
  clear(filter: ClearFilter, signal: AbortSignal): Promise<TierWork> {
    return this.#calls.run(async () => {
      const action = 'clear the tier';
      const connection = this.#blockConnection(action);
      const blockBytes = headerBytes + this.#coder.identity.blockBytes;
      const ask = <T>(request: RedisRequest<T>): Promise<T> => this.#ask(action, signal, connection, request);
      return clearKeys({ prefix: this.#keyPrefix, blockBytes, filter, nowMs: Date.now(), ask });
    });
  }

  tamper(key: BlockKey, corrupt: (stored: Uint8Array) => Uint8Array): Promise<boolean> {
    return this.#calls.run(async () => {
      const action = 'tamper with a block';
      const connection = this.#blockConnection(action);
      const name = this.keyOf(key);
      const stored = await this.#ask(action, undefined, connection, {
        send: (client) => client.getexBuffer(name),
        isAnswer: isValue,
      });
      if (stored === null) return false;
      const corrupted = Buffer.from(corrupt(stored));
      const send = (client: RedisClient): Promise<unknown> => client.set(name, corrupted, 'EX', this.#ttlSeconds);
      await this.#ask(action, undefined, connection, { send, isAnswer: isStoreAnswer });
      return true;
    });
  }

  /** None: the server evicts, and does not say which blocks. */
  takeEvicted(): readonly BlockKey[] {
    return [];
  }

  counters(): Readonly<Record<string, number>> {
    return { ...this.#counters };
  }

  levels(): Readonly<Record<string, number>> {
    return { connections: this.#connections.filter(({ isUsable }) => isUsable).length };
  }

  async close(): Promise<void> {
    await this.#calls.close();
    for (const connection of this.#connections) connection.close();
    await this.#coder.close();
  }

  #transfer<T>(signal: AbortSignal, call: () => Promise<T>): Promise<T> {
    return this.#calls.run(() => this.#slots.run(signal, call));
  }

  async #decode(key: BlockKey, value: Buffer, into: Uint8Array): Promise<MissReason | undefined> {
    const header = new Uint8Array(headerBytes);
    header.set(value.subarray(0, headerBytes));
    const reason = this.#coder.codec.verifyHeader(key, header, value.length);
    if (reason !== undefined) return reason;
    into.set(value.subarray(headerBytes));
    return this.#coder.verify(key, header, into, value.length);
  }

  /** The stored block; null if it is missing; only the header if the payload is in a sink. */
  #get(key: BlockKey, connection: RedisConnection, signal: AbortSignal): Promise<Buffer | null> {
    const send = async (client: RedisClient): Promise<unknown> => {
      try {
        return await client.getexBuffer(this.keyOf(key), 'EX', this.#ttlSeconds);
      } catch (error) {
        // The key has a list or another type, which no tier stores.
        if (error instanceof Error && error.message.startsWith('WRONGTYPE')) return Buffer.alloc(headerBytes + 1);
        throw error;
      }
    };
    return this.#ask('load a block', signal, connection, { send, isAnswer: isValue });
  }

  /** The end of a load that got an answer. */
  async #loaded(
    key: BlockKey,
    reason: MissReason | undefined,
    connection: RedisConnection,
    signal: AbortSignal,
  ): Promise<MissReason | undefined> {
    this.#count(reason ?? 'loaded');
    connection.gotBlock(reason !== 'wrongKey');
    if (reason !== undefined) await this.#removeCorrupt(this.keyOf(key), connection, signal);
    return reason;
  }

  /** Begins the time to live again. The answer does not matter, so no call waits for it. */
  #refresh(name: string, connection: RedisConnection): void {
    if (!connection.isUsable) return;
    connection
      .send({ send: (client) => client.expire(name, this.#ttlSeconds), isAnswer: isCountUpTo(1) })
      .catch(() => this.#count('refreshFailed'));
  }

  /** Removes it, so that the block can be stored again. */
  async #removeCorrupt(name: string, connection: RedisConnection, signal: AbortSignal): Promise<void> {
    const send = (client: RedisClient): Promise<unknown> => client.unlink(name);
    try {
      await this.#ask('remove a corrupt block', signal, connection, { send, isAnswer: isCountUpTo(1) });
    } catch (error) {
      if (signal.aborted) throw error;
      // The next load finds the block corrupt again.
    }
  }

  #lookUpConnection(): RedisConnection {
    return this.#firstUsable(this.#connections, 'look up blocks');
  }

  /** The connection for blocks with the fewest commands in flight. */
  #blockConnection(action: string): RedisConnection {
    const [lookUps, ...forBlocks] = this.#connections;
    const byLoad = forBlocks.toSorted((a, b) => a.inFlight - b.inFlight);
    return this.#firstUsable([...byLoad, lookUps!], action);
  }

  #firstUsable(connections: readonly RedisConnection[], action: string): RedisConnection {
    const found = connections.find(({ isUsable }) => isUsable);
    if (found !== undefined) return found;
    throw this.#failed(action, new Error(`no connection to ${this.#url.label} (${connections[0]!.failure})`));
  }

  /** Sends a command. Errors become `tierFailed`; the reason of an aborted signal does not change. */
  #ask<T>(
    action: string,
    signal: AbortSignal | undefined,
    connection: RedisConnection,
    request: RedisRequest<T>,
  ): Promise<T> {
    const answer = connection.send(request).catch((error: unknown) => {
      // After a failover, the old primary keeps its connections and refuses to write.
      if (error instanceof Error && error.message.startsWith('READONLY')) connection.reset(error.message);
      throw this.#failed(action, error);
    });
    return signal === undefined ? answer : unlessAborted(answer, signal);
  }

  #failed(action: string, error: unknown): KvasirError {
    if (error instanceof KvasirError) return error;
    this.#count('failed');
    const reason = textOfError(error, this.#url.password);
    const code = codeOfError(error);
    return tierFailed({ tier: this.name, action, reason, ...(code === undefined ? {} : { code }) });
  }

  /** Tells the operator when the tier becomes usable or unusable, and when the reason becomes one that he can remove. */
  #report(): void {
    if (!this.#isOpen) return;
    const { label } = this.#url;
    if (this.#connections.some(({ isUsable }) => isUsable)) {
      if (this.#reported !== undefined) this.#event(`The tier ${this.name} is connected to ${label}.`);
      this.#reported = undefined;
      return;
    }
    const refusal = this.#connections.find(({ refusal }) => refusal !== undefined)?.refusal?.message;
    if (this.#reported !== undefined && (refusal === undefined || refusal === this.#reported)) return;
    this.#reported = refusal ?? 'unreachable';
    const reason = refusal ?? `${label} does not answer (${this.#connections[0]!.failure})`;
    this.#event(`The tier ${this.name} neither loads nor stores blocks: ${reason}`);
  }

  #count(name: string, count = 1): void {
    this.#counters[name] = (this.#counters[name] ?? 0) + count;
  }
}

const isValue = (answer: unknown): answer is Buffer | null => answer === null || Buffer.isBuffer(answer);
const isStoreAnswer = (answer: unknown): answer is 'OK' | 'full' | null =>
  answer === 'OK' || answer === 'full' || answer === null;
const isCountUpTo =
  (max: number) =>
  (answer: unknown): answer is number =>
    typeof answer === 'number' && answer >= 0 && answer <= max;
