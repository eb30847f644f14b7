import type { AsyncEngine } from '../../../engine/contract.ts';
import type { TraceHeaders } from '../../../engine/observer.ts';
import type { GenerationMeter, Prompt } from '../../generation/generation.ts';
import { generateAll } from '../../generation/generation.ts';
import type { ParsedChat } from '../../generation/request.ts';
import type { Caller } from '../../http/callers.ts';
import { jsonInTurns } from '../../http/json-pieces.ts';
import { type ConversationItem, fromOutput } from './conversation-items.ts';
import type { EarlierResponses, ParsedResponse } from './parse-response.ts';
import { itemNotFound, previousResponseNotFound, responseNotFound, responseNotUsable } from './response-errors.ts';
import type { ResponseKeeper } from './response-keeper.ts';
import type { ResponseRun } from './response-run.ts';
import { type History, ResponseStore } from './response-store.ts';
import type { ResponseBody, ResponseEvent, ResponseStatus } from './response-types.ts';

/** A response that is ready to be generated. */
export interface ResponseJob {
  readonly run: ResponseRun;
  /** Of `engineFor`. */
  readonly engine: AsyncEngine;
  readonly asked: ParsedResponse;
  /** The chat request that the engine computes. */
  readonly parsed: ParsedChat;
  readonly prompts: readonly Prompt[];
  readonly meter: GenerationMeter;
  readonly controller: AbortController;
  readonly traceHeaders?: TraceHeaders;
}

/** The responses of each tenant, which no other tenant can name. */
export class TenantResponses {
  readonly #storeMaxBytes: number;
  readonly #stores = new Set<ResponseStore>();
  readonly #tenants = new Map<string | undefined, Responses>();

  readonly #keeper: ResponseKeeper | undefined;

  /** @param storeMaxBytes of all tenants together */
  constructor(storeMaxBytes: number, keeper?: ResponseKeeper) {
    this.#storeMaxBytes = storeMaxBytes;
    this.#keeper = keeper;
    keeper?.onForget((tenant, id) => this.of({ tenant }).forgetStored(id));
  }

  of({ tenant }: Pick<Caller, 'tenant'>): Responses {
    const known = this.#tenants.get(tenant);
    if (known !== undefined) return known;
    const store = new ResponseStore(this.#storeMaxBytes, this.#stores);
    const kept = this.#keeper?.stateOf(tenant);
    if (kept !== undefined) store.restore(kept);
    const responses = new Responses(store, tenant, this.#keeper);
    this.#tenants.set(tenant, responses);
    return responses;
  }
}

/**
 * The responses that clients can name: those that are generated now, and those that have ended and are stored. A response moves from
 * the first to the second before a client can read its last event.
 */
export class Responses implements EarlierResponses {
  readonly #store: ResponseStore;
  readonly #tenant: string | undefined;
  readonly #keeper: ResponseKeeper | undefined;
  readonly #running = new Map<string, ResponseJob>();
  /** Those whose JSON is stored, or is made for it. */
  readonly #ended = new WeakSet<ResponseJob>();

  constructor(store: ResponseStore, tenant: string | undefined, keeper?: ResponseKeeper) {
    this.#store = store;
    this.#tenant = tenant;
    this.#keeper = keeper;
  }

  readonly history = (id: string): History => {
    const running = this.#running.get(id);
    const parameter = 'previous_response_id';
    if (running !== undefined) {
      const { status } = running.run;
      throw responseNotUsable({ parameter, id, status, action: 'continued', remedy: 'Wait until it has ended.' });
    }
    const history = this.#store.history(id);
    if (history === undefined) throw previousResponseNotFound({ parameter, id: shorten(id) });
    return history;
  };

  readonly item = (id: string): ConversationItem => {
    const item = this.#store.item(id);
    if (item === undefined) throw itemNotFound({ parameter: 'input', id: shorten(id) });
    return item;
  };

  /** A response, or its JSON if it has ended. */
  get(id: string): ResponseBody | string {
    const running = this.#running.get(id);
    if (running !== undefined) return running.run.body();
    const json = this.#store.json(id);
    if (json === undefined) throw responseNotFound({ id: shorten(id) });
    return json;
  }

  /** The new items of the request for a response. */
  input(id: string): readonly ConversationItem[] {
    const input = this.#running.get(id)?.asked.input ?? this.#store.input(id);
    if (input === undefined) throw responseNotFound({ id: shorten(id) });
    return input;
  }

  delete(id: string): void {
    const running = this.#running.get(id);
    if (running !== undefined) {
      const remedy = 'Cancel it or wait until it has ended.';
      throw responseNotUsable({ id, status: running.run.status, action: 'deleted', remedy });
    }
    if (!this.#store.delete(id)) throw responseNotFound({ id: shorten(id) });
  }

  /** It was deleted elsewhere. */
  forgetStored(id: string): void {
    this.#store.delete(id);
  }

  /** Ends a response that runs in the background, and returns it. One that has ended stays as it is. */
  async cancel(id: string): Promise<ResponseBody | string> {
    const running = this.#running.get(id);
    const response = this.get(id);
    const { background, status } = typeof response === 'string' ? (JSON.parse(response) as ResponseBody) : response;
    if (!background) {
      const remedy = 'Only responses with `background` can be cancelled; for the others, close the connection.';
      throw responseNotUsable({ id, status, action: 'cancelled', remedy });
    }
    if (running === undefined || isEnded(status)) return response;
    running.controller.abort();
    running.run.cancel();
    await this.#end(running);
    return running.run.body();
  }

  /** From now on, clients can name this response. */
  begin(job: ResponseJob): void {
    // Without `store`, only its own stream knows the response.
    if (job.asked.echo.store) this.#running.set(job.run.id, job);
  }

  /** No client has learned its id. */
  forget({ run }: ResponseJob): void {
    this.#running.delete(run.id);
  }

  /**
   * Generates a response that has begun. Its events tell a client what each step of the engine added. Throws if the engine refuses the
   * request or fails; the caller then calls `fail` if the client knows the response already.
   */
  async *generate(job: ResponseJob): AsyncGenerator<ResponseEvent, void, void> {
    const { run, engine, prompts, meter, controller, asked } = job;
    let hasEnded = false;
    try {
      const settings = { ...job, id: run.id, promptsAtOnce: 1, tenant: this.#tenant };
      for await (const delta of generateAll(engine, prompts, settings, controller)) {
        if (run.status === 'cancelled') return;
        meter.add(delta);
        const events = run.add(delta);
        hasEnded = delta.finish !== undefined && !isGone(job);
        if (hasEnded) await this.#end(job);
        yield* events;
      }
    } finally {
      // The client is gone, or the caller ends a response that failed.
      if (!hasEnded && !asked.echo.background) this.#running.delete(run.id);
    }
  }

  /** Ends a response whose generation threw an error. */
  async fail(job: ResponseJob, error: unknown): Promise<ResponseEvent[]> {
    const events = job.run.fail(error);
    await this.#end(job);
    return events;
  }

  async #end(job: ResponseJob): Promise<void> {
    const { run, asked } = job;
    const { history, input, echo } = asked;
    if (!echo.store || this.#ended.has(job)) return;
    this.#ended.add(job);
    const json = await jsonInTurns(run.body(), this.#store.jsonLengthMax);
    this.#running.delete(run.id);
    if (json === undefined) return;
    const output = run.output.map((item) => [item.id, fromOutput(item)] as const);
    const stored = { id: run.id, json, items: [...input, ...output.map(([, item]) => item)] };
    this.#store.put({ ...stored, history, outputItems: new Map(output) });
    const previousId = echo.previous_response_id ?? undefined;
    this.#keeper?.stored(this.#tenant, { ...stored, previousId, outputIds: output.map(([id]) => id) });
  }
}

const isEnded = (status: ResponseStatus): boolean => status !== 'queued' && status !== 'in_progress';

/** Only responses in the background go on without their client. */
const isGone = ({ controller, asked }: ResponseJob): boolean => controller.signal.aborted && !asked.echo.background;

const shorten = (id: string): string => (id.length <= 80 ? id : `${id.slice(0, 80)}...`);
