import type { KvCache } from '../kv/kv-cache.ts';
import type { KvRequest } from '../kv/kv-request.ts';
import type { BlockPlace } from '../kv/proposal.ts';
import type { ExternalKv } from './external-kv.ts';
import type { RequestState } from './request-state.ts';
import type { RunningList } from './running-list.ts';

/** How often one request asks again because a load failed. A worker's death does not count: it says nothing about stores. */
const retriesMax = 4;

/**
 * Requests that have lost KV while they hold pages. Before such a request computes full blocks again, the connector is
 * asked for them, as at its admission: loading a block costs a hundredth of computing it, so one block is worth the
 * question. The request keeps its pages, waits beside the others like one whose blocks are loading, and
 * what the connector has is loaded into the pages that lost it.
 *
 *   running -- lost --> loading, asking -- answer or deadline --> loading --> running
 *
 * Only where all groups keep all pages of a request: elsewhere the plan decides which pages are needed at all.
 */
export class LostKv {
  readonly #kv: KvCache;
  readonly #external: ExternalKv;
  /** Requests that have lost KV and have no answer yet, with the blocks to ask for; undefined: all that they lack. */
  readonly #lost = new Map<KvRequest, ReadonlySet<string> | undefined>();

  constructor(kv: KvCache, external: ExternalKv) {
    this.#kv = kv;
    this.#external = external;
  }

  /** Pages in the pool have lost their content, and these requests plan again. */
  pagesLost(users: Iterable<KvRequest>): void {
    for (const user of users) this.#lost.set(user, undefined);
  }

  /** Loads of these blocks have failed. Another place may have them; what the stores said of other blocks still holds. */
  loadsFailed(users: Iterable<KvRequest>, places: readonly BlockPlace[]): void {
    const names = places.map(nameOf);
    for (const user of users) {
      if (++this.#external.stateOf(user.slot).failedLoadRetries > retriesMax) continue;
      const before = this.#lost.get(user);
      if (before === undefined && this.#lost.has(user)) continue;
      this.#lost.set(user, new Set([...(before ?? []), ...names]));
    }
  }

  /** No step is out: asks for what was lost. Requests that wait for an answer or a load leave their seats. */
  ask(running: RunningList, parked: RequestState[]): void {
    for (const user of this.#lost.keys()) {
      const state = this.#external.stateOf(user.slot);
      if (!user.isOpen || !user.admitted) {
        this.#lost.delete(user);
        continue;
      }
      if (this.#missing(user).length === 0) {
        state.isAsking = false;
        // While another request fills its blocks, it may still inherit them.
        if (!this.#kv.awaitsOthers(user)) this.#lost.delete(user);
        continue;
      }
      state.isAsking = true;
      if ((this.isAsking(state) || this.#kv.awaitsLoad(user)) && state.status === 'running') {
        running.remove(state);
        state.status = 'loading';
        parked.push(state);
      }
    }
  }

  /** Whether the request still waits for the connector's answer. Orders the load when there is one. */
  isAsking(state: RequestState): boolean {
    if (!state.isAsking) return false;
    const match = this.#external.match(state, this.#missing(state.kv));
    if (match === undefined) return true;
    state.isAsking = false;
    this.#lost.delete(state.kv);
    this.#external.admitted(state, match, this.#kv.loadMissing(state.kv, match.blocks));
    return false;
  }

  #missing(user: KvRequest): BlockPlace[] {
    const places = this.#kv.missing(user);
    const wanted = this.#lost.get(user);
    return wanted === undefined ? places : places.filter((place) => wanted.has(nameOf(place)));
  }
}

const nameOf = ({ group, block }: BlockPlace): string => `${group}/${block}`;
