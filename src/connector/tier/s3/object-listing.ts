import type { Clock } from '../../../base/clock.ts';
import type { ObjectIndex } from './object-index.ts';
import { parseObjectName, timeText } from './object-name.ts';
import type { ObjectPage } from './s3-bucket.ts';
import { S3Failure } from './s3-failure.ts';

export interface ObjectListingOptions {
  readonly index: ObjectIndex;
  readonly clock: Clock;
  /** The server's clock: names of objects have its time. */
  readonly serverNowMs: () => number;
  /** How much later than the time in its name an object may become visible. */
  readonly overlapMs: number;
  /** How often all names are listed. */
  readonly fullEveryMs: number;
  /** Names after `after`, without the folder. */
  page(after: string, continuation: string | undefined): Promise<ObjectPage>;
  /** Gives other work time between two pages. Rejects when the tier is closed. */
  pause(pauseMs: number): Promise<void>;
  /** Called when a listing in the background fails. */
  failed(error: unknown): void;
}

/** Reading a page blocks the event loop for up to 0.1 s. The first pages of a listing come without a pause. */
const pagesAtOnce = 8;
/** How long the pause after a page is, relative to the time for the page. */
const pauseShare = 1;
const pauseShareInBackground = 9;
const pagesWithoutNamesMax = 100;

/**
 * Keeps the index up to date. The first listing has all names. Later listings begin `overlapMs` before the last one, so
 * their cost depends on the new objects only. They miss objects of a slow write or of a writer with a wrong clock. From
 * time to time, a full listing in the background finds these objects, and which objects were deleted.
 */
export class ObjectListing {
  readonly #options: ObjectListingOptions;
  #running: { readonly startedMs: number; readonly promise: Promise<void> } | undefined;
  /** When the last listing began that was successful, by both clocks. */
  #lastMs = Number.NEGATIVE_INFINITY;
  #lastServerMs: number | undefined;
  #full: Promise<void> | undefined;
  #fullStartedMs = Number.NEGATIVE_INFINITY;
  #serial = 1;

  constructor(options: ObjectListingOptions) {
    this.#options = options;
  }

  /** The listing under way; new objects of this tier are marked with it, so that its end does not remove them. */
  get serial(): number {
    return this.#serial;
  }

  /** Whether the index has had all objects once. */
  get isComplete(): boolean {
    return this.#lastServerMs !== undefined;
  }

  /** Resolves when the index has all objects that were visible at `atMs`. Calls at the same time share a listing. */
  async knowAt(atMs: number): Promise<void> {
    while (this.#lastMs < atMs) {
      if (this.#running === undefined || this.#running.startedMs >= atMs) {
        await this.#list();
        continue;
      }
      // Its result is too old, but two listings at once are no faster. If it fails, the next would too.
      await this.#running.promise;
    }
    this.#planFull();
  }

  /** Resolves when no listing runs. */
  async whenIdle(): Promise<void> {
    await Promise.allSettled([this.#running?.promise, this.#full]);
  }

  #list(): Promise<void> {
    this.#running ??= { startedMs: this.#options.clock.nowMs(), promise: this.#listOnce() };
    return this.#running.promise;
  }

  async #listOnce(): Promise<void> {
    const { clock, serverNowMs } = this.#options;
    const startedMs = clock.nowMs();
    try {
      if (this.#lastServerMs === undefined) await this.#listAll(pauseShare);
      else await this.#pages(timeText(this.#lastServerMs - this.#options.overlapMs), pauseShare);
      this.#lastMs = startedMs;
      // After the first answer, because before that the server's clock is not known.
      this.#lastServerMs = serverNowMs() - (clock.nowMs() - startedMs);
    } finally {
      this.#running = undefined;
    }
  }

  #planFull(): void {
    const { clock, fullEveryMs, failed } = this.#options;
    if (this.#full !== undefined || clock.nowMs() - this.#fullStartedMs < fullEveryMs) return;
    this.#full = this.#listAll(pauseShareInBackground)
      .catch(failed)
      .finally(() => {
        this.#full = undefined;
      });
  }

  async #listAll(share: number): Promise<void> {
    this.#fullStartedMs = this.#options.clock.nowMs();
    const serial = ++this.#serial;
    await this.#pages('', share);
    this.#options.index.removeUnseen(serial);
  }

  async #pages(after: string, share: number): Promise<void> {
    const { index, page, clock, pause } = this.#options;
    index.beginListing();
    try {
      const order = new PageOrder();
      let continuation: string | undefined;
      for (let pages = 1; ; pages++) {
        const beganMs = clock.nowMs();
        const { objects, continuation: next } = await page(after, continuation);
        for (const { name, bytes } of objects) index.addListed(name, bytes, this.#serial);
        if (next === undefined) return;
        if (next === continuation) throw endless('the server lists the same page again');
        order.check(objects);
        continuation = next;
        if (pages >= pagesAtOnce) await pause((clock.nowMs() - beganMs) * share);
      }
    } finally {
      index.endListing();
    }
  }
}

/** Detects a listing without end: a server lists names in their order. Only names of blocks are compared, because they are ASCII. */
class PageOrder {
  #last = '';
  #pagesWithoutNames = 0;

  check(objects: ObjectPage['objects']): void {
    const names = objects.flatMap(({ name }) => (parseObjectName(name) === undefined ? [] : [name]));
    const [first] = names;
    if (first === undefined) {
      this.#pagesWithoutNames++;
      if (this.#pagesWithoutNames > pagesWithoutNamesMax)
        throw endless(`the server lists more than ${pagesWithoutNamesMax} pages without names of blocks`);
      return;
    }
    if (first <= this.#last) throw endless('the server lists the same names again');
    this.#pagesWithoutNames = 0;
    this.#last = names.at(-1)!;
  }
}

const endless = (message: string): S3Failure => new S3Failure('failed', 'EndlessListing', message);
