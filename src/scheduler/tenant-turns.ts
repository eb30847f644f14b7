import type { RequestState } from './request-state.ts';
import type { RunningList } from './running-list.ts';

/**
 * The turns by which requests wait: those of different tenants alternate (start-time fair queueing). A request gets its turn when it
 * arrives: the turn after the last one of its tenant, and not before a turn that has begun. Without tenants, turns are the order of
 * arrival.
 *
 *   arrivals     six requests of a; after the second is admitted, two of b
 *   turns of a   1 2 3 4 5 6
 *   turns of b       3 4
 *   admitted     a a a b a b a a
 */
export class TenantTurns {
  /** Requests that have not ended, and the last turn, by tenant. */
  readonly #live = new Map<string | undefined, { requests: number; last: number }>();
  #begun = 0;

  /** The turn of a request that arrives. */
  arrived(tenant: string | undefined): number {
    const known = this.#live.get(tenant) ?? { requests: 0, last: 0 };
    known.requests++;
    known.last = Math.max(known.last, this.#begun) + 1;
    this.#live.set(tenant, known);
    return known.last;
  }

  /** The request is admitted. */
  began({ turn }: RequestState): void {
    this.#begun = Math.max(this.#begun, turn);
  }

  /** Turns of a tenant without requests are forgotten: it has not used those of aborted requests. */
  ended({ request: { tenant } }: RequestState): void {
    const known = this.#live.get(tenant)!;
    if (--known.requests === 0) this.#live.delete(tenant);
  }
}

/** A tenant with running requests leaves at least one of so many slots and blocks free for tenants without any. */
const FREE_PART = 4;

/**
 * Whether a tenant that holds `held` places may take further ones, which leave `free` places. The more tenants hold places, the less
 * each of them may have, so some always stay free: a quarter beside one tenant, a seventh beside two.
 */
export const isWithinShare = (held: number, further: number, free: number): boolean =>
  held === 0 || held + further <= (FREE_PART - 1) * free;

interface SharedParts {
  readonly running: RunningList;
  readonly waitingForRemoteKv: readonly RequestState[];
  readonly options: { readonly maxNumSeqs: number };
}

/**
 * What a tenant may use while others have nothing: with requests of its own that have blocks, it leaves a quarter of the slots and of the
 * pool free. So the first request of another tenant need not wait until one of many long requests ends. Requests without a
 * tenant may use everything.
 */
export class TenantShares {
  readonly #parts: SharedParts;
  readonly #blockCount: number;
  /** By tenant: requests that have blocks. */
  readonly #held = new Map<string, number>();
  /** Tenants for whose next request the pool has no block in this step. */
  readonly #full = new Set<string>();

  constructor(parts: SharedParts, blockCount: number) {
    this.#parts = parts;
    this.#blockCount = blockCount;
  }

  /** Called before the admissions of a step. O(running requests). */
  begin(): void {
    const { running, waitingForRemoteKv } = this.#parts;
    this.#held.clear();
    this.#full.clear();
    for (let i = 0; i < running.size; i++) this.admitted(running.at(i));
    for (const state of waitingForRemoteKv) this.admitted(state);
  }

  admitted({ request: { tenant } }: RequestState): void {
    if (tenant !== undefined) this.#held.set(tenant, (this.#held.get(tenant) ?? 0) + 1);
  }

  /** The pool has no blocks for the tenant's next request, but it may have for those of others. */
  isFull({ request: { tenant } }: RequestState): void {
    if (tenant !== undefined) this.#full.add(tenant);
  }

  /** Whether the share of its tenant has a slot for this request. */
  readonly hasSlot = ({ request: { tenant } }: RequestState): boolean => {
    if (tenant === undefined) return true;
    if (this.#full.has(tenant)) return false;
    const held = this.#held.get(tenant);
    if (held === undefined) return true;
    const { running, waitingForRemoteKv, options } = this.#parts;
    return isWithinShare(held, 1, options.maxNumSeqs - running.size - waitingForRemoteKv.length - 1);
  };

  /** Blocks that must stay free when this request is admitted. */
  blocksLeft({ request: { tenant } }: RequestState): number {
    return tenant !== undefined && this.#held.has(tenant) ? Math.floor(this.#blockCount / FREE_PART) : 0;
  }
}
