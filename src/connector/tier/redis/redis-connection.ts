import type { KvasirError } from '../../../base/errors.ts';
import type { RedisClient } from './redis-client.ts';
import { codeOfError, refusalOf, textOfError } from './redis-refusals.ts';
import type { RedisUrl } from './redis-url.ts';

export interface RedisConnectionOptions {
  readonly url: RedisUrl;
  readonly create: () => RedisClient;
  /** Called when the connection becomes usable or is lost, and when an attempt to connect fails. */
  readonly changed: () => void;
}

/** One command. */
export interface RedisRequest<T> {
  readonly send: (client: RedisClient) => Promise<unknown>;
  /** Whether the command can have this answer. */
  readonly isAnswer: (answer: unknown) => answer is T;
}

const backOffMinMs = 50;
const backOffMaxMs = 2_000;
/** Two keys in different slots: a node of a cluster refuses a command with both. */
const probeKeys = ['kvasir:probe', 'kvasir:probe:2'] as const;
const probeSeconds = 10;
/** After this many blocks of other keys in a row, the connection is replaced. */
const wrongKeysMax = 3;

/**
 * One connection to the server, or to each node of a cluster:
 *
 *     connecting --> probed --> usable --> lost
 *         ^ \___________________  |         |
 *         |_______ back-off _____\|_________|
 *
 * The probe sends every command of the tier once, because a server can accept connections and answer nothing, or refuse
 * single commands. A connection that is lost rejects its commands; nothing is sent twice.
 */
export class RedisConnection {
  readonly #options: RedisConnectionOptions;
  #usable: RedisClient | undefined;
  /** Of the last attempt, until `close`. */
  #latest: RedisClient | undefined;
  #failure = 'not connected yet';
  #refusal: KvasirError | undefined;
  #attempts = 0;
  #retry: NodeJS.Timeout | undefined;
  #isClosed: boolean = false;
  #inFlight = 0;
  #wrongKeys = 0;

  constructor(options: RedisConnectionOptions) {
    this.#options = options;
  }

  get isUsable(): boolean {
    return this.#usable !== undefined;
  }

  /** Commands without an answer. */
  get inFlight(): number {
    return this.#inFlight;
  }

  /** Why the connection is not usable. */
  get failure(): string {
    return this.#failure;
  }

  /** Why trying again does not help, if that is known. */
  get refusal(): KvasirError | undefined {
    return this.#refusal;
  }

  /** Resolves after the first attempt. Further attempts run in the background. */
  async connect(): Promise<void> {
    const client = this.#options.create();
    this.#latest = client;
    this.#retry = undefined;
    let error: unknown;
    client.on('error', (emitted) => {
      error = emitted;
    });
    client.on('end', () => this.#lost(client, error ?? new Error('the server closed the connection')));
    try {
      await client.connect();
      await this.#probe(client);
      // An error without an effect on the probe: the client continues in database 0 if it cannot select ours.
      if (error !== undefined) throw error;
    } catch (failure) {
      // `connect` says only that the connection is closed; the event has the reason.
      this.#failed(client, error ?? failure);
      return;
    }
    if (this.#isClosed) return;
    this.#usable = client;
    this.#wrongKeys = 0;
    this.#attempts = 0;
    this.#refusal = undefined;
    this.#options.changed();
  }

  /**
   * Sends a command. The caller has checked `isUsable`. An answer that the command cannot have belongs to another command,
   * so all later answers do too: the connection is replaced.
   */
  async send<T>({ send, isAnswer }: RedisRequest<T>): Promise<T> {
    const client = this.#usable;
    if (client === undefined) throw new Error(this.#failure);
    this.#inFlight++;
    try {
      const answer = await send(client);
      if (isAnswer(answer)) return answer;
    } finally {
      this.#inFlight--;
    }
    const error = new Error('the answer belongs to another command');
    this.#lost(client, error);
    throw error;
  }

  /** Counts blocks with another key than the one that was asked for. Several in a row: as in `send`. */
  gotBlock(hasItsKey: boolean): void {
    this.#wrongKeys = hasItsKey ? 0 : this.#wrongKeys + 1;
    if (this.#wrongKeys >= wrongKeysMax) this.reset('its answers have other keys');
  }

  /** Replaces the connection. Its commands without an answer fail. */
  reset(reason: string): void {
    if (this.#usable !== undefined) this.#lost(this.#usable, new Error(reason));
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#retry);
    this.#usable = undefined;
    this.#latest?.disconnect();
  }

  async #probe(client: RedisClient): Promise<void> {
    const [key, other] = probeKeys;
    if (client.nodes === undefined) await client.exists(key, other);
    else {
      await client.exists(key);
      // The first commands to a node that is not connected yet would fail.
      await Promise.allSettled(client.nodes('master').map((node) => node.connect()));
    }
    await client.getexBuffer(key, 'EX', probeSeconds);
    try {
      await client.set(key, '1', 'EX', probeSeconds);
    } catch (error) {
      // A full server, or one that cannot write its disk now, still has blocks to load.
      if (!/^(OOM|MISCONF|NOREPLICAS)/.test((error as Error).message)) throw error;
    }
    await client.expire(key, probeSeconds);
    await client.unlink(key);
  }

  #lost(client: RedisClient, error: unknown): void {
    if (this.#usable !== client) return;
    this.#usable = undefined;
    this.#failed(client, error);
  }

  #failed(client: RedisClient, error: unknown): void {
    client.disconnect();
    if (this.#isClosed) return;
    const { url, changed } = this.#options;
    this.#failure = textOfError(error, url.password);
    this.#refusal = refusalOf(url.label, this.#failure, codeOfError(error));
    const delayMs = Math.min(backOffMinMs * 2 ** this.#attempts++, backOffMaxMs);
    this.#retry = setTimeout(() => void this.connect(), delayMs);
    this.#retry.unref();
    changed();
  }
}
