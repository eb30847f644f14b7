import { KvasirError } from '../base/errors.ts';
import type { RequestId } from '../core/ids.ts';
import type { DraftOrder } from '../scheduler/speculation/speculator.ts';
import type { AsyncEngine, EngineEvent } from './contract.ts';
import type { DraftModel } from './engine-parts.ts';

/**
 * An engine of its own computes the draft model. Its prefix cache has the texts so far, so each draft computes only the tokens since the
 * last one. A new prompt is computed beside the next steps, so that no stream waits for it.
 */
export class DraftEngine implements DraftModel {
  readonly #engine: Pick<AsyncEngine, 'generate' | 'isHealthy' | 'close'>;
  readonly #onEvent: ((event: EngineEvent) => void) | undefined;
  /** The requests of the last order, and whether the model has computed their prompts. */
  #isReady = new Map<RequestId, boolean>();
  #hasWarned: boolean = false;

  constructor(engine: Pick<AsyncEngine, 'generate' | 'isHealthy' | 'close'>, onEvent?: (event: EngineEvent) => void) {
    this.#engine = engine;
    this.#onEvent = onEvent;
  }

  draft({ requests, count }: DraftOrder): Promise<Int32Array[]> {
    const before = this.#isReady;
    const isReady = new Map<RequestId, boolean>();
    this.#isReady = isReady;
    for (const { id } of requests) isReady.set(id, before.get(id) === true);
    return Promise.all(
      requests.map(({ id, text }) => {
        if (isReady.get(id) === true) return this.#continueText(text, count);
        if (!before.has(id))
          void this.#continueText(text, 1).then(() => this.#isReady.has(id) && this.#isReady.set(id, true));
        return nothing;
      }),
    );
  }

  close(): Promise<void> {
    return this.#engine.close();
  }

  async #continueText(text: Int32Array, maxTokens: number): Promise<Int32Array> {
    const tokens: number[] = [];
    // A copy: a new text is computed beside the next steps, in which the request's tokens grow.
    const prompt = text.slice();
    if (this.#engine.isHealthy()) {
      try {
        const params = { temperature: 0, maxTokens, ignoreEos: true };
        for await (const { tokenIds } of this.#engine.generate({ prompt, params })) tokens.push(...tokenIds);
      } catch (error) {
        // The text may be longer than the draft model's context.
        if (!(error instanceof KvasirError)) throw error;
      }
    } else this.#warn();
    return Int32Array.from(tokens);
  }

  #warn(): void {
    if (this.#hasWarned) return;
    this.#hasWarned = true;
    const message = 'The draft model does not work any more. Texts are computed without it.';
    this.#onEvent?.({ level: 'warn', message, fields: {} });
  }
}

const nothing = new Int32Array(0);
