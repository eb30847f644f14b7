import type { ServerResponse } from 'node:http';
import { assert } from '../base/assert.ts';
import { clientGone, keyLimitReached } from './server-errors.ts';

/** How many requests of one API key the server takes at a time. */
export interface KeyLimit {
  /** In logs and metrics, instead of the key. */
  readonly name: string;
  readonly key: string;
  /** Requests that the engine has. */
  readonly maxRunning: number;
  /** Requests beyond them that wait, in order of arrival; further ones get status 429. */
  readonly maxWaiting: number;
}

export interface KeyCounts {
  readonly name: string;
  readonly running: number;
  readonly waiting: number;
  readonly refused: number;
}

/** The requests of the keys that have limits. A key with many requests delays its own requests, not those of others. */
export class KeyQueues {
  readonly #queues: ReadonlyMap<string, KeyQueue>;

  constructor(limits: readonly KeyLimit[]) {
    this.#queues = new Map(limits.map((limit) => [limit.key, new KeyQueue(limit)]));
  }

  get keys(): readonly string[] {
    return [...this.#queues.keys()];
  }

  /**
   * Waits until the key has room for this request. The room is free again when the response is sent or its connection closed.
   * @throws keyLimitReached, or clientGone if the client did not wait
   */
  async admit(key: string, response: ServerResponse): Promise<void> {
    await this.#queues.get(key)?.admit(response);
  }

  counts(): readonly KeyCounts[] {
    return [...this.#queues.values()].map((queue) => queue.counts());
  }
}

class KeyQueue {
  readonly #limit: KeyLimit;
  readonly #waiting = new Set<() => void>();
  #running = 0;
  #refused = 0;

  constructor(limit: KeyLimit) {
    this.#limit = limit;
  }

  async admit(response: ServerResponse): Promise<void> {
    const { name, maxRunning, maxWaiting } = this.#limit;
    if (response.destroyed) throw clientGone();
    if (this.#running < maxRunning) {
      this.#running++;
      response.once('close', () => this.#release());
    } else if (this.#waiting.size < maxWaiting) {
      await this.#turn(response);
    } else {
      this.#refused++;
      throw keyLimitReached({ name, maxRunning, maxWaiting });
    }
  }

  counts(): KeyCounts {
    return {
      name: this.#limit.name,
      running: this.#running,
      waiting: this.#waiting.size,
      refused: this.#refused,
    };
  }

  /** Resolves when a request has ended and this one has its place. */
  #turn(response: ServerResponse): Promise<void> {
    return new Promise((resolve, reject) => {
      const begin = (): void => {
        response.off('close', leave);
        // At once: the connection may close before the promise's caller continues.
        response.once('close', () => this.#release());
        resolve();
      };
      const leave = (): void => {
        this.#waiting.delete(begin);
        reject(clientGone());
      };
      this.#waiting.add(begin);
      response.once('close', leave);
    });
  }

  /** The place goes to the request that has waited longest, so the number of running requests stays. */
  #release(): void {
    assert(this.#running > 0, 'a request that ends was running');
    const [next] = this.#waiting;
    if (next === undefined) {
      this.#running--;
      return;
    }
    this.#waiting.delete(next);
    next();
  }
}
