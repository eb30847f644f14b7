import type { JsonObject } from '../base/json.ts';
import type { RequestUpdate } from '../core/request.ts';
import type { AdmissionParts } from './admit.ts';
import type { RequestState } from './request-state.ts';

/**
 * Requests that only load: prefetches. Such a request waits, asks its connector and is admitted as any other. Then it stays
 * among the requests that wait for loads until none of its loads is open, and ends. Its blocks stay in the prefix cache. A
 * block whose load failed is not computed; another request that shares the block becomes its owner.
 */
const isLoaded = ({ kv }: Pick<AdmissionParts, 'kv'>, state: RequestState): boolean =>
  state.request.loadOnly === true && !state.isQueryingConnector && !kv.awaitsLoad(state.kv);

/** Whether a request has ended, so that a step is needed. */
export const hasLoaded = (parts: Pick<AdmissionParts, 'kv' | 'waitingForRemoteKv'>): boolean =>
  parts.waitingForRemoteKv.some((state) => isLoaded(parts, state));

/** Ends them, and adds their updates. `finish` releases the blocks and returns the connector's answer to the client. */
export function endLoaded(
  parts: Pick<AdmissionParts, 'kv' | 'waitingForRemoteKv'>,
  updates: RequestUpdate[],
  finish: (state: RequestState) => { readonly kvTransferParams?: JsonObject } | undefined,
): void {
  const { waitingForRemoteKv } = parts;
  let kept = 0;
  for (let i = 0; i < waitingForRemoteKv.length; i++) {
    const state = waitingForRemoteKv[i]!;
    if (isLoaded(parts, state)) updates.push({ ...state.update(), finish: { reason: 'length', ...finish(state) } });
    else waitingForRemoteKv[kept++] = state;
  }
  waitingForRemoteKv.length = kept;
}
