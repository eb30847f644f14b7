import { assert } from '../src/base/assert.ts';
import type { Prng } from '../src/base/prng.ts';
import type { Timer } from '../src/base/timers.ts';
import type { BlockKey } from '../src/connector/block-key.ts';
import type { ConnectorRequest, KvBlock } from '../src/connector/connector.ts';
import { GatheredWakes } from '../src/connector/places/gathered-wakes.ts';
import type { RunningLookup } from '../src/connector/places/tier-lookups.ts';
import type { RequestId } from '../src/core/ids.ts';

/** The places of blocks when a look-up ended. */
export type EarlyAnswers = ReadonlyMap<BlockKey, string | undefined>;

interface ArrivalLookUp {
  readonly running: RunningLookup;
  answers: EarlyAnswers | undefined;
}

interface Event {
  readonly atMs: number;
  readonly run: () => void;
}

const durationsMs = [1, 5, 30, 120, 600] as const;
const deadlineMs = 700;
/** As long as `GatheredWakes` waits at most for look-ups that run at the same time. */
const wakeWithinMs = 100;

/**
 * The look-ups that begin when requests arrive, by the world's clock. The real `GatheredWakes` wakes the engine, and within a
 * bounded time: at once while a step is in flight.
 */
export class ArrivalLookUps {
  readonly #prng: Prng | undefined;
  readonly #placeOf: (key: BlockKey) => string | undefined;
  readonly #wakes: GatheredWakes;
  readonly #events = new Set<Event>();
  readonly #lookUps = new Map<RequestId, ArrivalLookUp>();
  /** Requests that have arrived, or that the connector was asked about. */
  readonly #known = new Set<RequestId>();
  #nowMs = 0;
  #isStepInFlight: boolean = false;
  /** A look-up has ended at this time, and the engine was not woken since. */
  #endedMs: number | undefined;

  /** Without `prng`, no look-up begins. */
  constructor(prng: Prng | undefined, placeOf: (key: BlockKey) => string | undefined, wake: () => void) {
    this.#prng = prng;
    this.#placeOf = placeOf;
    const after = (delayMs: number, run: () => void): Timer => this.#after(delayMs, run);
    this.#wakes = new GatheredWakes({ nowMs: () => this.#nowMs }, { after }, () => {
      this.#endedMs = undefined;
      wake();
    });
  }

  arrived({ id, wanted }: ConnectorRequest): void {
    assert(!this.#known.has(id), `${id} arrives after the connector has heard of it`);
    assert(wanted.length > 0, `${id} arrives and wants no block`);
    this.#known.add(id);
    const prng = this.#prng;
    // A connector need not look up every request.
    if (prng === undefined || prng.chance(0.2)) return;
    let lookUp: ArrivalLookUp | undefined;
    const running = this.#wakes.start((done) => {
      const timer = this.#after(prng.pick(durationsMs), () => {
        lookUp!.answers = this.#answersFor(wanted);
        this.#endedMs ??= this.#nowMs;
        done();
      });
      return { deadlineMs: this.#nowMs + deadlineMs, cancel: () => timer.cancel() };
    })!;
    lookUp = { running, answers: undefined };
    this.#lookUps.set(id, lookUp);
  }

  /** Until when the request waits for its look-up; undefined: it does not wait. */
  deadlineOf(id: RequestId): number | undefined {
    const lookUp = this.#lookUps.get(id);
    return lookUp === undefined || lookUp.answers !== undefined ? undefined : lookUp.running.deadlineMs;
  }

  /** The answers for the first question about the request. */
  take(id: RequestId): EarlyAnswers | undefined {
    this.#known.add(id);
    const answers = this.#lookUps.get(id)?.answers;
    if (answers !== undefined) this.#lookUps.delete(id);
    return answers;
  }

  /** The request has blocks, or has ended. */
  end(id: RequestId): void {
    this.#known.add(id);
    const lookUp = this.#lookUps.get(id);
    if (lookUp === undefined) return;
    this.#lookUps.delete(id);
    if (lookUp.answers === undefined) lookUp.running.cancel();
  }

  stepBegins(): void {
    this.#isStepInFlight = true;
    this.#wakes.stepBegins();
  }

  stepEnds(): void {
    this.#isStepInFlight = false;
    this.#wakes.stepEnds();
  }

  /** Time passes: look-ups end, and the engine is woken. */
  advance(nowMs: number): void {
    for (let next = this.#next(); next !== undefined && next.atMs <= nowMs; next = this.#next()) {
      this.#nowMs = next.atMs;
      this.#events.delete(next);
      next.run();
      this.#checkWoken();
    }
    this.#nowMs = nowMs;
    this.#checkWoken();
  }

  get nextEventMs(): number {
    return this.#next()?.atMs ?? Infinity;
  }

  #answersFor(wanted: readonly KvBlock[]): EarlyAnswers {
    return new Map(wanted.map(({ key }) => [key, this.#placeOf(key)]));
  }

  #checkWoken(): void {
    if (this.#endedMs === undefined) return;
    const waitedMs = this.#nowMs - this.#endedMs;
    assert(
      waitedMs <= (this.#isStepInFlight ? 0 : wakeWithinMs),
      `I8: the engine was not woken ${waitedMs} ms after the end of a look-up`,
    );
  }

  #next(): Event | undefined {
    let next: Event | undefined;
    for (const event of this.#events) if (next === undefined || event.atMs < next.atMs) next = event;
    return next;
  }

  #after(delayMs: number, run: () => void): Timer {
    const event = { atMs: this.#nowMs + delayMs, run };
    this.#events.add(event);
    return { cancel: () => void this.#events.delete(event) };
  }
}
