import type { BlockKey } from '../../block-key.ts';
import type { KvIdentity } from '../../connector.ts';
import type { MissReason } from '../../reasons.ts';
import type { BlockCoder } from '../block-coder.ts';
import { headerBytes } from '../block-header.ts';
import { BlockScatter, type ScatterTarget } from './block-scatter.ts';
import type { StoredObject, StoredPlace } from './object-index.ts';
import { countOfShortKeys } from './object-name.ts';
import type { ByteRange, ByteSink } from './s3-bucket.ts';
import { S3Failure } from './s3-failure.ts';

export interface BlockLoadsOptions {
  /** A `BlockCoder` or a `BlockCodec`. */
  readonly codec: {
    readonly identity: KvIdentity;
    verify(...of: Parameters<BlockCoder['verify']>): Verified;
  };
  readonly getsAtOnce: number;
  /** Of one request. */
  readonly bytesMax: number;
  get(object: StoredObject, range: ByteRange, sink: ByteSink, signal: AbortSignal): Promise<void>;
}

/** `objectMissing`: the object does not exist. */
export type BlockLoadAnswer = MissReason | 'objectMissing' | undefined;

type Verified = MissReason | undefined | Promise<MissReason | undefined>;
type Verify = (header: Uint8Array, into: Uint8Array, storedBytes: number) => Verified;

/** A load that is waiting or running. It ends once: with its bytes, an error, or the abort of its signal. */
class OpenLoad implements ScatterTarget {
  readonly slot: number;
  readonly promise: Promise<BlockLoadAnswer>;
  into: Uint8Array | undefined;
  /** Set when the GET begins. */
  onAborted: (() => void) | undefined;
  readonly #verify: Verify;
  readonly #signal: AbortSignal;
  readonly #onAbort = (): void => {
    this.reject(this.#signal.reason);
    this.onAborted?.();
  };
  #settle!: { resolve(answer: BlockLoadAnswer | Verified): void; reject(error: unknown): void };

  constructor(slot: number, into: Uint8Array, signal: AbortSignal, verify: Verify) {
    this.slot = slot;
    this.into = into;
    this.#signal = signal;
    this.#verify = verify;
    this.promise = new Promise((resolve, reject) => {
      this.#settle = { resolve, reject };
    });
    signal.addEventListener('abort', this.#onAbort, { once: true });
  }

  get isOver(): boolean {
    return this.into === undefined;
  }

  /** The load does not end at an abort any more, because the verification touches the memory. It ends soon. */
  arrived(header: Uint8Array, storedBytes: number): void {
    if (this.into !== undefined) this.resolve(this.#verify(header, this.into, storedBytes));
  }

  resolve(answer: BlockLoadAnswer | Verified): void {
    this.#end();
    this.#settle.resolve(answer);
  }

  reject(error: unknown): void {
    this.#end();
    this.#settle.reject(error);
  }

  /** After this, no bytes arrive in the memory. */
  #end(): void {
    this.into = undefined;
    this.#signal.removeEventListener('abort', this.#onAbort);
  }
}

/**
 * Loads blocks with few requests: loads of neighbouring blocks that wait at the same time share a GET. Each load ends when
 * its own bytes have arrived. An aborted load ends at once, and nothing is written to its memory after that.
 */
export class BlockLoads {
  readonly #options: BlockLoadsOptions;
  readonly #slotBytes: number;
  /** In the order of arrival. */
  readonly #waiting = new Map<StoredObject, OpenLoad[]>();
  #running = 0;
  #isPumpPlanned: boolean = false;

  constructor(options: BlockLoadsOptions) {
    this.#options = options;
    this.#slotBytes = headerBytes + options.codec.identity.blockBytes;
  }

  load({ object, slot }: StoredPlace, key: BlockKey, into: Uint8Array, signal: AbortSignal): Promise<BlockLoadAnswer> {
    signal.throwIfAborted();
    const load = new OpenLoad(slot, into, signal, (header, bytes, storedBytes) =>
      this.#options.codec.verify(key, header, bytes, storedBytes),
    );
    const others = this.#waiting.get(object);
    if (others === undefined) this.#waiting.set(object, [load]);
    else others.push(load);
    this.#planPump();
    return load.promise;
  }

  /** Loads that are asked for in one turn of the event loop go together. */
  #planPump(): void {
    if (this.#isPumpPlanned) return;
    this.#isPumpPlanned = true;
    setImmediate(() => {
      this.#isPumpPlanned = false;
      this.#pump();
    });
  }

  #pump(): void {
    while (this.#running < this.#options.getsAtOnce) {
      const [next] = this.#waiting;
      if (next === undefined) return;
      const run = this.#takeRun(...next);
      if (run.length > 0) void this.#get(next[0], run);
    }
  }

  /** The load that has waited longest, and waiting loads of the blocks beside it, in the order of their slots. */
  #takeRun(object: StoredObject, all: readonly OpenLoad[]): OpenLoad[] {
    const waiting = all.filter(({ isOver }) => !isOver);
    const countMax = Math.max(1, Math.floor(this.#options.bytesMax / this.#slotBytes));
    const bySlot = new Map<number, OpenLoad>();
    // A block that is asked for twice is read twice.
    for (const load of waiting) if (!bySlot.has(load.slot)) bySlot.set(load.slot, load);
    const run: OpenLoad[] = [];
    const oldest = waiting[0];
    if (oldest !== undefined) {
      let first = oldest.slot;
      while (oldest.slot - first + 1 < countMax && bySlot.has(first - 1)) first--;
      for (let slot = first; run.length < countMax && bySlot.has(slot); slot++) run.push(bySlot.get(slot)!);
    }
    const rest = waiting.filter((load) => !run.includes(load));
    // Objects take turns.
    this.#waiting.delete(object);
    if (rest.length > 0) this.#waiting.set(object, rest);
    return run;
  }

  async #get(object: StoredObject, run: readonly OpenLoad[]): Promise<void> {
    this.#running++;
    const controller = new AbortController();
    for (const load of run) {
      load.onAborted = () => {
        if (run.every(({ isOver }) => isOver)) controller.abort(new Error('no load needs the blocks any more'));
      };
    }
    const slotCount = countOfShortKeys(object.shortKeys);
    const firstSlot = run[0]!.slot;
    const scatter = new BlockScatter(run, { firstSlot, slotCount, slotBytes: this.#slotBytes });
    const range = { first: firstSlot * this.#slotBytes, end: (firstSlot + run.length) * this.#slotBytes };
    try {
      await this.#options.get(object, range, scatter, controller.signal);
      scatter.end();
    } catch (error) {
      this.#fail(run, scatter, error);
    } finally {
      this.#running--;
      this.#pump();
    }
  }

  #fail(run: readonly OpenLoad[], scatter: BlockScatter, error: unknown): void {
    const kind = error instanceof S3Failure ? error.kind : undefined;
    if (kind === 'outOfRange') {
      scatter.end();
      return;
    }
    for (const load of run.filter(({ isOver }) => !isOver)) {
      if (kind === 'missing') load.resolve('objectMissing');
      else load.reject(error);
    }
  }
}
