import type { DraftOrder } from '../scheduler/speculation/speculator.ts';
import type { Executor } from '../worker/executor.ts';
import type { DraftModel } from './engine-parts.ts';

/** The model's own prediction layer drafts. The rank that has it has read the texts already. */
export class PredictionDrafter implements DraftModel {
  readonly #executor: Required<Pick<Executor, 'draft'>>;

  constructor(executor: Required<Pick<Executor, 'draft'>>) {
    this.#executor = executor;
  }

  draft({ requests, count }: DraftOrder): Promise<readonly Int32Array[]> {
    return this.#executor.draft(
      requests.map(({ id, text }) => ({ requestId: id, length: text.length })),
      count,
    );
  }

  /** The executor is closed with the engine. */
  close(): Promise<void> {
    return Promise.resolve();
  }
}
