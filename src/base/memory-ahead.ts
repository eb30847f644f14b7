import type { Timer, Timers } from './timers.ts';

export interface MemoryAheadOptions<Piece> {
  /** The next piece of memory that will be used and is not mapped; undefined: enough is mapped. Returns each piece once. */
  readonly nextPiece: () => Piece | undefined;
  /** Maps the piece on another thread and does not change its content. False: the system cannot do this. */
  readonly map: (piece: Piece) => Promise<boolean>;
  /** Whether the machine has other work. */
  readonly isBusy: () => boolean;
  readonly timers: Timers;
}

/** As often as `IdleCpus` measures. */
const pollMs = 100;
/** Less often, because a poll takes 0.13 ms beside a step of a large model, whose weights replace all else in the caches. Within the longest time that `IdleCpus` compares. */
const busyPollMs = 400;
/** On a machine that is busy for longer, the next use of memory starts again. */
const pollsMax = 25;

/**
 * Maps memory before it is used, piece by piece, while the machine is idle. The first write to a page of new memory takes
 * several times as long as the copy itself, because the system maps the page. On the path of a step, the forward pass
 * would wait for that.
 *
 *     resting --wake--> waiting --idle--> mapping a piece --> mapping the next piece ... --> resting
 *                         ^   \              |
 *                         |    busy          | busy
 *                         +-----+------------+
 */
export class MemoryAhead<Piece> {
  readonly #options: MemoryAheadOptions<Piece>;
  #state: 'resting' | 'waiting' | 'mapping' | 'ended' = 'resting';
  #busyPolls = 0;
  #timer: Timer | undefined;
  #mapping: Promise<void> = Promise.resolve();

  constructor(options: MemoryAheadOptions<Piece>) {
    this.#options = options;
  }

  /** Memory was used, so more may have to be mapped. Cheap: called after each store. */
  wake(): void {
    if (this.#state !== 'resting') return;
    this.#busyPolls = 0;
    this.#wait(pollMs);
  }

  /** Maps no further piece. Resolves when none is being mapped. */
  close(): Promise<void> {
    this.#state = 'ended';
    this.#timer?.cancel();
    return this.#mapping;
  }

  #wait(delayMs: number): void {
    this.#state = 'waiting';
    this.#timer = this.#options.timers.after(delayMs, () => this.#mapNext());
  }

  #mapNext(): void {
    const { nextPiece, map, isBusy } = this.#options;
    if (isBusy()) {
      if (++this.#busyPolls < pollsMax) this.#wait(busyPollMs);
      else this.#state = 'resting';
      return;
    }
    this.#busyPolls = 0;
    const piece = nextPiece();
    if (piece === undefined) {
      this.#state = 'resting';
      return;
    }
    this.#state = 'mapping';
    this.#mapping = map(piece).then((isMapped) => {
      if (this.#state === 'ended') return;
      if (isMapped) this.#mapNext();
      else this.#state = 'ended';
    });
  }
}
