import { assert } from '../../base/assert.ts';
import { clientGone, requestMemoryFull, requestOverMemory } from './server-errors.ts';

export interface RequestMemoryLimits {
  /** Of one request. */
  readonly requestMaxBytes: number;
  /** Of all requests together. */
  readonly totalMaxBytes: number;
  /** Completions that the engine computes at the same time. */
  readonly slots: number;
}

/** What a request may need. */
export interface RequestNeeds {
  readonly bytes: number;
  readonly completions: number;
}

/** Who waits: callers of one tenant wait for each other before those of others wait for them. */
export type Tenant = string | undefined;

/** Memory that is in use until it is disposed of. */
export interface HeldMemory extends Disposable {
  readonly bytes: number;
}

/** A parsed body needs more memory than its bytes. */
const BYTES_PER_BODY_BYTE = 4;

/**
 * The memory that requests may use, known before they use it. Each part of `totalMaxBytes` has its own limit, so that one kind of use
 * cannot take the memory of another:
 *
 *     1/8   bodies that are not received completely      (`BodyIntake`; beyond it, bodies are refused)
 *     1/2   requests whose bodies are received           beyond it, requests are refused
 *     1/4   answers that may need less than 1/64         beyond it, requests wait
 *     1/8   answers that may need more                   the same; one of them is always admitted
 *
 * Of the requests that wait, the next is the oldest of the tenant that holds least of the part; of such tenants, the one whose last turn is
 * the longest ago.
 *
 * Requests for many completions also wait for each other, so that a few of them do not fill the engine's queue: other requests would be
 * refused, or wait behind thousands of completions.
 */
export class RequestMemory {
  readonly #limits: RequestMemoryLimits;
  readonly #bodies: Share;
  readonly #small: Share;
  readonly #large: Share;
  readonly #wide: Share;
  /** Of bodies that are not received completely. */
  #intakeBytes = 0;

  constructor(limits: RequestMemoryLimits) {
    const { totalMaxBytes, slots } = limits;
    this.#limits = limits;
    this.#bodies = new Share(totalMaxBytes / 2);
    this.#small = new Share(totalMaxBytes / 4);
    this.#large = new Share(totalMaxBytes / 8);
    this.#wide = new Share(2 * slots);
  }

  /** For the bodies that are not received completely, together. */
  get intakeMaxBytes(): number {
    return this.#limits.totalMaxBytes / 8;
  }

  /** Bytes that are held now. */
  get heldBytes(): number {
    return this.#intakeBytes + this.#bodies.used + this.#small.used + this.#large.used;
  }

  /** Bodies in progress need more memory, or less. */
  changeIntake(byBytes: number): void {
    this.#intakeBytes += byBytes;
    assert(this.#intakeBytes >= 0, 'memory of a body is given back once');
  }

  /** Requests that wait for memory. */
  get waiting(): number {
    return this.#small.waiting + this.#large.waiting + this.#wide.waiting;
  }

  /** For a request with a body of `bodyBytes`. @throws requestMemoryFull */
  holdBody(bodyBytes: number): HeldMemory {
    const held = this.#bodies.take(bodyBytes * BYTES_PER_BODY_BYTE);
    if (held === undefined) throw requestMemoryFull({ limitBytes: this.#limits.totalMaxBytes });
    return held;
  }

  /** @throws requestOverMemory if the request never fits */
  check({ bytes }: RequestNeeds): void {
    const { requestMaxBytes } = this.#limits;
    if (bytes > requestMaxBytes) throw requestOverMemory({ bytes, limitBytes: requestMaxBytes });
  }

  /**
   * For the answer to a request. Waits until other requests have ended. A request that may also wait for its key does so before: so none
   * keeps memory that others need while it waits.
   * @throws requestOverMemory if it never fits, clientGone if the client did not wait
   */
  async hold(needs: RequestNeeds, signal: AbortSignal, tenant?: Tenant): Promise<HeldMemory> {
    this.check(needs);
    const { bytes, completions } = needs;
    const { totalMaxBytes } = this.#limits;
    const share = bytes > totalMaxBytes / 64 ? this.#large : this.#small;
    if (completions <= NARROW_MAX) return share.takeInTurn(bytes, signal, tenant);
    const wide = await this.#wide.takeInTurn(completions, signal, tenant);
    try {
      const held = await share.takeInTurn(bytes, signal, tenant);
      return joined(held, wide);
    } catch (error) {
      wide[Symbol.dispose]();
      throw error;
    }
  }
}

/** Completions of a request that does not wait for other requests' completions. */
const NARROW_MAX = 8;

const joined = (held: HeldMemory, wide: Disposable): HeldMemory => ({
  bytes: held.bytes,
  [Symbol.dispose]: () => {
    held[Symbol.dispose]();
    wide[Symbol.dispose]();
  },
});

interface Waiter {
  readonly bytes: number;
  readonly tenant: Tenant;
  admit(held: HeldMemory): void;
}

/** A part of the memory, or of other units. One request always fits, also if it needs more than the whole part. */
class Share {
  readonly #maxBytes: number;
  readonly #waiters = new Set<Waiter>();
  /** Of each tenant, and the number of its last turn. */
  readonly #turns = new Map<Tenant, { readonly used: number; readonly last: number }>();
  #turn = 0;
  #used = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  get used(): number {
    return this.#used;
  }

  get waiting(): number {
    return this.#waiters.size;
  }

  /** Undefined: there is no room. */
  take(bytes: number): HeldMemory | undefined {
    return this.#hasRoom(bytes) ? this.#hold(bytes, undefined) : undefined;
  }

  async takeInTurn(bytes: number, signal: AbortSignal, tenant: Tenant): Promise<HeldMemory> {
    if (signal.aborted) throw clientGone();
    return new Promise((resolve, reject) => {
      const leave = (): void => {
        this.#waiters.delete(waiter);
        reject(clientGone());
        this.#admit();
      };
      const waiter: Waiter = {
        bytes,
        tenant,
        admit: (held) => {
          signal.removeEventListener('abort', leave);
          resolve(held);
        },
      };
      this.#waiters.add(waiter);
      signal.addEventListener('abort', leave, { once: true });
      this.#admit();
    });
  }

  #hasRoom(bytes: number): boolean {
    return this.#used === 0 || this.#used + bytes <= this.#maxBytes;
  }

  #hold(bytes: number, tenant: Tenant): HeldMemory {
    let isHeld = true;
    this.#use(bytes, tenant);
    return {
      bytes,
      [Symbol.dispose]: () => {
        if (!isHeld) return;
        isHeld = false;
        this.#use(-bytes, tenant);
        this.#admit();
      },
    };
  }

  #use(bytes: number, tenant: Tenant): void {
    this.#used += bytes;
    const { used, last } = this.#turnsOf(tenant);
    assert(used + bytes >= 0, 'memory is given back once');
    this.#turns.set(tenant, { used: used + bytes, last: bytes > 0 ? ++this.#turn : last });
  }

  #turnsOf(tenant: Tenant): { readonly used: number; readonly last: number } {
    return this.#turns.get(tenant) ?? { used: 0, last: 0 };
  }

  #admit(): void {
    for (;;) {
      const next = this.#next();
      // A large request is not passed: small ones could keep it waiting for ever.
      if (next === undefined || !this.#hasRoom(next.bytes)) return;
      this.#waiters.delete(next);
      next.admit(this.#hold(next.bytes, next.tenant));
    }
  }

  /** O(waiting requests). */
  #next(): Waiter | undefined {
    let next: Waiter | undefined;
    for (const waiter of this.#waiters) if (next === undefined || this.#isBefore(waiter, next)) next = waiter;
    return next;
  }

  /** `other` has waited for longer. */
  #isBefore(waiter: Waiter, other: Waiter): boolean {
    const [own, before] = [this.#turnsOf(waiter.tenant), this.#turnsOf(other.tenant)];
    return own.used === before.used ? own.last < before.last : own.used < before.used;
  }
}
