import { assert } from '../../base/assert.ts';
import { clientGone, keyLimitReached, tooManyChoices } from './server-errors.ts';

/** An API key with a name, and how many completions of it the server takes at a time. */
export interface KeyLimit {
  /** In logs and metrics, instead of the key. */
  readonly name: string;
  readonly key: string;
  /** Completions that the engine has; `n` completions of a prompt count `n` times. Default: no limit. */
  readonly maxRunning?: number;
  /** Completions beyond them that wait, in order of arrival; further ones get status 429. Default 0. */
  readonly maxWaiting?: number;
  /** Whether the key may use the endpoints that concern the requests of all keys. Default false. */
  readonly isAdmin?: boolean;
}

export interface KeyCounts {
  readonly name: string;
  readonly running: number;
  readonly waiting: number;
  readonly refused: number;
}

/** What one request has of the limits of its key. */
interface QueuedWork {
  readonly completions: number;
  isRunning: boolean;
  onTurn(): void;
}

/** The running and waiting completions of one API key. A key with many requests delays its own requests, not those of others. */
export class KeyQueue {
  readonly name: string;
  readonly maxRunning: number;
  readonly #maxWaiting: number;
  /** In order of arrival. */
  readonly #waiting = new Set<QueuedWork>();
  #running = 0;
  #refused = 0;

  constructor({ name, maxRunning = Infinity, maxWaiting = 0 }: Omit<KeyLimit, 'key'>) {
    this.name = name;
    this.maxRunning = maxRunning;
    this.#maxWaiting = maxWaiting;
  }

  /** @throws keyLimitReached */
  enter(completions: number): QueuedWork {
    assert(completions <= this.maxRunning, 'a request that never fits is refused before it waits');
    const work: QueuedWork = { completions, isRunning: false, onTurn: () => undefined };
    if (this.#waiting.size === 0 && this.#hasRoom(work)) this.#begin(work);
    else if (this.#waitingCompletions + completions <= this.#maxWaiting) this.#waiting.add(work);
    else {
      this.#refused++;
      throw keyLimitReached({ name: this.name, maxRunning: this.maxRunning, maxWaiting: this.#maxWaiting });
    }
    return work;
  }

  /** The work has ended, or never begins. */
  leave(work: QueuedWork): void {
    if (work.isRunning) this.#running -= work.completions;
    else assert(this.#waiting.delete(work), 'a request leaves once');
    assert(this.#running >= 0, 'a request that ends was running');
    for (const next of this.#waiting) {
      // A large request is not passed: small ones could keep it waiting for ever.
      if (!this.#hasRoom(next)) return;
      this.#waiting.delete(next);
      this.#begin(next);
    }
  }

  counts(): KeyCounts {
    return {
      name: this.name,
      running: this.#running,
      waiting: this.#waitingCompletions,
      refused: this.#refused,
    };
  }

  get #waitingCompletions(): number {
    let sum = 0;
    for (const { completions } of this.#waiting) sum += completions;
    return sum;
  }

  #hasRoom({ completions }: QueuedWork): boolean {
    return this.#running + completions <= this.maxRunning;
  }

  #begin(work: QueuedWork): void {
    this.#running += work.completions;
    work.isRunning = true;
    work.onTurn();
  }
}

/**
 * The place of one request among those of its key. The code that starts the work disposes of it when the work has ended in any way, which is
 * the only way in which it becomes free:
 *
 *     using place = new Place(queue);
 *     place.enter(prompts, n);            refused, or accepted
 *     await place.turn(signal);           other requests of the key have ended
 */
export class Place implements Disposable {
  readonly #queue: KeyQueue | undefined;
  #work: QueuedWork | undefined;

  /** @param queue undefined: the key has no limits */
  constructor(queue: KeyQueue | undefined) {
    this.#queue = queue;
  }

  /**
   * Takes a place for the `n` completions of each prompt. Returns how many prompts may be computed at the same time: the key's
   * limit can be too small for all of them.
   * @throws keyLimitReached, or tooManyChoices if the completions of one prompt never fit
   */
  enter(prompts: number, n = 1): number {
    assert(this.#work === undefined, 'a request takes one place');
    if (this.#queue === undefined) return prompts;
    const { maxRunning } = this.#queue;
    if (n > maxRunning) throw tooManyChoices({ asked: `${n} completions of a prompt`, limit: maxRunning });
    const atOnce = Math.min(prompts, Math.floor(maxRunning / n));
    this.#work = this.#queue.enter(atOnce * n);
    return atOnce;
  }

  /** Resolves when the work may begin. @throws clientGone */
  async turn(signal: AbortSignal): Promise<void> {
    const work = this.#work;
    if (signal.aborted) throw clientGone();
    if (work === undefined || work.isRunning) return;
    await new Promise<void>((resolve, reject) => {
      work.onTurn = resolve;
      signal.addEventListener('abort', () => reject(clientGone()), { once: true });
    });
  }

  /** The place for an owner that outlives this one, which has none afterwards. */
  move(): Place {
    const moved = new Place(this.#queue);
    moved.#work = this.#work;
    this.#work = undefined;
    return moved;
  }

  [Symbol.dispose](): void {
    const work = this.#work;
    this.#work = undefined;
    if (work !== undefined) this.#queue!.leave(work);
  }
}
