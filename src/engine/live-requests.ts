import { assert, assertDefined } from '../base/assert.ts';
import { allowSharing } from '../base/unless-aborted.ts';
import type { OutputConstraint } from '../core/constraint.ts';
import { type RequestId, requestId } from '../core/ids.ts';
import type { FinishReason, RequestUpdate } from '../core/request.ts';
import type { AbortedRequest } from '../scheduler/contract.ts';
import type { Adapters } from './adapters.ts';
import type { EngineCacheMonitor } from './cache-monitor.ts';
import { poolerOf } from './embed.ts';
import type { EngineParts } from './engine-parts.ts';
import type { RequestArrival } from './observer.ts';
import type { Observers } from './observers.ts';
import { Outbox } from './outbox.ts';
import { OutputStream } from './output-stream.ts';
import { completionRequest, type PreparedRequest } from './prepare.ts';
import { RequestHandle } from './request-handle.ts';
import type { EngineTotals } from './stats.ts';

export interface StartOptions {
  readonly name: string | undefined;
  readonly signal: AbortSignal | undefined;
  readonly constraint: OutputConstraint | undefined;
  readonly arrival: RequestArrival | undefined;
}

export interface LiveRequestsParts extends Pick<EngineParts, 'scheduler' | 'tokenizer' | 'model'> {
  readonly observers: Observers;
  readonly totals: EngineTotals;
  readonly cache: EngineCacheMonitor | undefined;
  readonly adapters: Pick<Adapters, 'hold' | 'release'> | undefined;
  /** Called before the updates of a step are delivered. */
  onDeliver(updates: readonly RequestUpdate[]): void;
  /** Called when a request enters or leaves: there may be work. */
  wake(): void;
}

/**
 * Every completion that has not ended, from its entry into the scheduler to its last delta. The scheduler has the state of
 * tokens, blocks and order; this class has the streams.
 */
export class LiveRequests {
  readonly outbox: Outbox;
  readonly #parts: LiveRequestsParts;
  readonly #handles = new Map<RequestId, RequestHandle>();
  #serial = 0;

  constructor(parts: LiveRequestsParts) {
    this.#parts = parts;
    this.outbox = new Outbox(
      (update) => this.#deliver(update),
      (updates) => parts.onDeliver(updates),
    );
  }

  get size(): number {
    return this.#handles.size;
  }

  countOf(tenant: string): number {
    let count = 0;
    for (const { request } of this.#handles.values()) if (request.tenant === tenant) count++;
    return count;
  }

  /** @throws KvasirError `adapterNotFound` if the request's adapter was unloaded meanwhile. */
  start(prepared: PreparedRequest, { name, signal, constraint, arrival }: StartOptions): OutputStream {
    const { scheduler, tokenizer, model, observers, adapters } = this.#parts;
    const { params, adapter } = prepared;
    if (adapter !== undefined) for (let index = 0; index < params.n; index++) adapters?.hold(adapter);
    const handles: RequestHandle[] = [];
    const onAbort = (): void => {
      for (const handle of handles) if (!handle.hasEnded) this.#abort(handle, 'abort');
    };
    const onEnd = (): void => {
      signal?.removeEventListener('abort', onAbort);
      // A completion that has not ended here has no reader any more.
      for (const handle of handles) if (!handle.hasEnded) this.#abandon(handle);
    };
    const stream = new OutputStream(params.n, onEnd, prepared.unreadMaxBytes);
    allowSharing(signal);
    const serial = ++this.#serial;
    for (let index = 0; index < params.n; index++) {
      const id = requestId(`${name ?? 'request'}#${serial}.${index}`);
      const { eosTokenIds } = tokenizer;
      const request = completionRequest(prepared, { id, index, constraint, eosTokenIds });
      const handle = new RequestHandle(request, index, stream, tokenizer, poolerOf(prepared, model));
      handles.push(handle);
      assert(!this.#handles.has(id), `request ${id} is live already`);
      this.#handles.set(id, handle);
      observers.began(request, arrival);
      // If the signal is aborted already, the request ends without entering the scheduler.
      if (signal?.aborted !== true) scheduler.add(request);
    }
    if (signal?.aborted === true) onAbort();
    else signal?.addEventListener('abort', onAbort, { once: true });
    this.#changed();
    return stream;
  }

  /** The engine closes. */
  abortAll(): void {
    for (const handle of [...this.#handles.values()]) if (!handle.hasEnded) this.#abort(handle, 'abort');
    assert(this.size === 0, `${this.size} requests are live after the engine has ended all`);
  }

  /** The engine is broken: the scheduler is not called again. */
  failAll(): void {
    for (const handle of [...this.#handles.values()]) {
      // A reader that saw the end of one completion may have closed the whole stream already.
      if (handle.hasEnded) continue;
      handle.end('error', undefined);
      this.#forget(handle);
    }
  }

  /** No step is in flight, and all updates are delivered: the engine and the scheduler have the same requests. */
  check(): void {
    const { running, waiting, waitingForRemoteKv } = this.#parts.scheduler.stats();
    const scheduled = running + waiting + waitingForRemoteKv;
    assert(scheduled === this.size, `${scheduled} requests in the scheduler, ${this.size} in the engine`);
  }

  #deliver(update: RequestUpdate): void {
    const handle = this.#handles.get(update.requestId);
    if (handle === undefined) return;
    const { scheduler, totals, observers, cache } = this.#parts;
    const before = handle.stats;
    handle.receive(update, () => scheduler.abort(update.requestId));
    if (isCounted(handle)) totals.add(before, assertDefined(handle.stats, 'an update has statistics'));
    observers.tokensArrived(handle, update.newTokens.length);
    if (!handle.hasEnded) return;
    cache?.ended(update.requestId, update.stats);
    this.#forget(handle);
  }

  #abort(handle: RequestHandle, reason: FinishReason): void {
    // Deliver the tokens of the last step first; they belong to the completion.
    this.outbox.deliverTo(handle.request.id);
    if (handle.hasEnded) return;
    handle.end(reason, this.#endInScheduler(handle));
    this.#forget(handle);
  }

  #abandon(handle: RequestHandle): void {
    this.#endInScheduler(handle);
    handle.abandon();
    this.#forget(handle);
  }

  #endInScheduler(handle: RequestHandle): AbortedRequest | undefined {
    const { scheduler, totals } = this.#parts;
    const aborted = scheduler.abort(handle.request.id);
    if (!isCounted(handle)) return aborted;
    if (aborted !== undefined) totals.add(handle.stats, aborted.stats);
    totals.countAbort();
    return aborted;
  }

  #forget(handle: RequestHandle): void {
    const { finishReason } = handle;
    assert(finishReason !== undefined, `request ${handle.request.id} is removed before its end`);
    assert(this.#handles.delete(handle.request.id), `request ${handle.request.id} is removed twice`);
    this.#parts.observers.ended(handle, finishReason);
    const { adapter } = handle.request;
    if (adapter !== undefined) this.#parts.adapters?.release(adapter);
    // Another request may wait for its blocks.
    this.#changed();
  }

  #changed(): void {
    this.#parts.cache?.changed();
    this.#parts.wake();
  }
}

/** Metrics are about prompts and outputs of clients. */
const isCounted = ({ request }: RequestHandle): boolean => request.loadOnly !== true;
