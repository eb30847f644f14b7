import type { RequestId } from '../core/ids.ts';
import type { RequestUpdate } from '../core/request.ts';

/** The updates of applied steps that are not delivered yet. They are delivered while the next step is computed. */
export class Outbox {
  readonly #deliver: (update: RequestUpdate) => void;
  readonly #before: (updates: readonly RequestUpdate[]) => void;
  #updates: readonly RequestUpdate[] = [];

  /** `deliver` is synchronous and must not throw. `before` is called before the updates of a step are delivered. */
  constructor(
    deliver: (update: RequestUpdate) => void,
    before: (updates: readonly RequestUpdate[]) => void = () => undefined,
  ) {
    this.#deliver = deliver;
    this.#before = before;
  }

  put(updates: readonly RequestUpdate[]): void {
    this.#updates = this.#updates.length === 0 ? updates : [...this.#updates, ...updates];
  }

  deliver(): void {
    const updates = this.#updates;
    this.#updates = [];
    this.#before(updates);
    for (const update of updates) this.#deliver(update);
  }

  /** Delivers the updates of one request, because it ends now. */
  deliverTo(id: RequestId): void {
    const updates = this.#updates;
    this.#updates = updates.filter(({ requestId }) => requestId !== id);
    for (const update of updates) if (update.requestId === id) this.#deliver(update);
  }
}
