import type { BlockKey } from '../block-key.ts';
import type { ConnectorRequest, KvBlock, SchedulerConnectorContext } from '../connector.ts';
import type { ConnectorStats } from '../connector-stats.ts';
import type { CircuitBreakerOptions } from '../tier/circuit-breaker.ts';
import { GatheredWakes } from './gathered-wakes.ts';
import { LeftHost } from './left-host.ts';
import { LookupWorth } from './lookup-worth.ts';
import { type Place, type PlaceAnswers, PlaceLookups } from './place-lookups.ts';
import { type RemotePrefill, RemotePrefills } from './remote-prefill.ts';
import type { RequestLimits } from './request-limits.ts';
import type { RunningLookup } from './tier-lookups.ts';

export interface RequestLookupsOptions {
  readonly lookupTimeoutMs: number;
  readonly remotePrefillTimeoutMs?: number | undefined;
  readonly breaker?: CircuitBreakerOptions;
  /** A look-up has ended. */
  readonly lookedUp?: ((keys: readonly BlockKey[], answers: PlaceAnswers) => void) | undefined;
}

/** What look-ups know for one request. */
export interface RequestLookup {
  readonly limits: RequestLimits;
  /** The blocks that another server has promised for the request. */
  readonly prefill: RemotePrefill | undefined;
  /** Where each block is. Undefined: not known; it is not looked up again before the next admission. */
  readonly answers: Map<BlockKey, PlaceAnswers[number]>;
  /** The blocks were looked up at this time, when the request arrived, and nothing has asked for them yet. */
  arrivedMs: number | undefined;
  running: RunningLookup | undefined;
}

/** Answers that are older than this at the first attempt to admit a request are asked for again. */
const earlyAnswerMs = 1_000;
/** A tier whose loads failed because its breaker is open is not asked for so long. */
const pauseMs = 1_000;

/** Looks up the blocks of requests in the places, in the background. */
export class RequestLookups {
  readonly #context: SchedulerConnectorContext;
  readonly #options: RequestLookupsOptions;
  #places: readonly Place[];
  readonly #lookups: PlaceLookups;
  readonly #prefills: RemotePrefills;
  readonly #wakes: GatheredWakes;
  /** Of look-ups of whole prompts, and of those whose first block is already in the pool or in host memory. */
  readonly #worth = { whole: new LookupWorth(), rest: new LookupWorth() };
  readonly #leftHost = new LeftHost();
  /** A look-up that no request waits for. */
  #sample: RunningLookup | undefined;
  #refresh: RunningLookup | undefined;
  /** By place: until when it is not asked. */
  readonly #pausedUntilMs = new Map<string, number>();

  constructor(places: readonly Place[], context: SchedulerConnectorContext, options: RequestLookupsOptions) {
    this.#context = context;
    this.#options = options;
    this.#places = places;
    this.#lookups = new PlaceLookups(places, context, options.lookupTimeoutMs, options.breaker);
    this.#prefills = new RemotePrefills(context, options.remotePrefillTimeoutMs);
    this.#wakes = new GatheredWakes(context.clock, context.timers, () => context.wake());
  }

  /** An administrator has attached or detached a tier. */
  setPlaces(places: readonly Place[]): void {
    this.#places = [...places];
    this.#lookups.setPlaces(this.#places);
  }

  /** `loads`: the request may load blocks, and so the wait for promised ones begins. */
  open(request: ConnectorRequest, limits: RequestLimits, loads: boolean): RequestLookup {
    const prefill = loads ? this.#prefills.read(request) : undefined;
    return { limits, prefill, answers: new Map(), arrivedMs: undefined, running: undefined };
  }

  /** The request may be admitted soon. `unknown`: the blocks to look up. `computeMs`: how long computing its blocks takes. */
  arrived(lookup: RequestLookup, unknown: readonly KvBlock[], computeMs: number | undefined): void {
    lookup.arrivedMs = this.#context.clock.nowMs();
    this.#start(lookup, unknown, computeMs);
  }

  /** Undefined: the answers are known, as far as they will be. Else the deadline of the look-up. */
  deadlineOf(lookup: RequestLookup, unknown: readonly KvBlock[], computeMs: number | undefined): number | undefined {
    const { arrivedMs } = lookup;
    lookup.arrivedMs = undefined;
    // The request has waited for long after its arrival. Only once, because a request must not wait again and again.
    const isOld = arrivedMs !== undefined && this.#context.clock.nowMs() - arrivedMs > earlyAnswerMs;
    if (isOld && lookup.running === undefined) lookup.answers.clear();
    if (lookup.running === undefined) this.#start(lookup, unknown, computeMs);
    return lookup.running?.deadlineMs;
  }

  placeOf({ answers }: RequestLookup, key: BlockKey): string | undefined {
    const answer = answers.get(key);
    return typeof answer === 'string' ? answer : undefined;
  }

  /** The request was admitted or has ended. */
  end(lookup: RequestLookup): void {
    lookup.running?.cancel();
    lookup.running = undefined;
    lookup.answers.clear();
  }

  /** Looks up blocks that no request waits for, unless such a look-up is running. */
  refresh(keysOf: () => readonly BlockKey[], done: (keys: readonly BlockKey[], answers: PlaceAnswers) => void): void {
    if (this.#refresh !== undefined) return;
    const keys = keysOf();
    if (keys.length === 0) return;
    const finish = (answers: PlaceAnswers): void => {
      this.#refresh = undefined;
      this.#options.lookedUp?.(keys, answers);
      done(keys, answers);
    };
    this.#refresh = this.#lookups.start(keys, () => true, finish);
  }

  /** Blocks have left host memory, so a place below it probably has them. */
  leftHost(keys: readonly BlockKey[]): void {
    if (this.#places.length > 0) for (const key of keys) this.#leftHost.add(key);
  }

  /** The circuit breaker of this place is open in a worker. */
  pause(place: string): void {
    this.#pausedUntilMs.set(place, this.#context.clock.nowMs() + pauseMs);
  }

  stepBegins(): void {
    this.#wakes.stepBegins();
  }

  stepEnds(): void {
    this.#wakes.stepEnds();
  }

  counters(): Readonly<Record<string, number>> {
    return this.#prefills.counters();
  }

  /** `isNamed`: the statistics of a place have its name. */
  stats(isNamed: boolean): ConnectorStats {
    return isNamed ? this.#lookups.stats() : this.#lookups.statsOfOne();
  }

  close(): void {
    this.#wakes.close();
    this.#sample?.cancel();
    this.#refresh?.cancel();
    this.#lookups.close();
  }

  /** Looks up the blocks without an answer, if an idle engine should wait for that or a step is in flight. */
  #start(lookup: RequestLookup, unknown: readonly KvBlock[], computeMs: number | undefined): void {
    const nowMs = this.#context.clock.nowMs();
    const isAllowed = ({ name, kind }: Place): boolean =>
      nowMs >= (this.#pausedUntilMs.get(name) ?? -Infinity) && lookup.limits.isAllowed(kind);
    if (!this.#places.some(isAllowed)) return;
    const blocks = unknown.filter(({ key }) => !lookup.answers.has(key));
    if (blocks.length === 0) return;
    const keys = [...new Set(blocks.map(({ key }) => key))];
    const promised = this.#prefills.promised(lookup.prefill, blocks);
    const isPromised = promised.keys.size > 0;
    const isIdle = !this.#wakes.isStepInFlight;
    const worth = blocks.some(({ index }) => index === 0) ? this.#worth.whole : this.#worth.rest;
    const isProbable = isPromised || keys.some((key) => this.#leftHost.has(key));
    if (isIdle && !isProbable && !worth.isWorthWaiting(computeMs)) {
      for (const key of keys) lookup.answers.set(key, undefined);
      this.#sampleLookup(worth, keys, isAllowed);
      return;
    }
    lookup.running = this.#wakes.start((done) =>
      this.#prefills.lookUp<PlaceAnswers[number]>(
        keys,
        promised,
        (some, answered) => this.#lookups.start(some, isAllowed, answered),
        (answers) => {
          lookup.running = undefined;
          for (const [i, key] of keys.entries()) lookup.answers.set(key, answers[i]);
          this.#options.lookedUp?.(keys, answers);
          if (!isPromised) this.#learn(worth, keys, answers, isIdle ? this.#context.clock.nowMs() - nowMs : undefined);
          done();
        },
      ),
    );
    if (lookup.running === undefined) for (const key of keys) lookup.answers.set(key, undefined);
  }

  /** The request does not wait for it: finds out whether waiting is worth its time again. One at a time. */
  #sampleLookup(worth: LookupWorth, keys: readonly BlockKey[], isAllowed: (place: Place) => boolean): void {
    if (this.#sample !== undefined) return;
    this.#sample = this.#lookups.start(keys, isAllowed, (answers) => {
      this.#sample = undefined;
      this.#learn(worth, keys, answers);
    });
  }

  /** A tier that has not answered says nothing. */
  #learn(worth: LookupWorth, keys: readonly BlockKey[], answers: PlaceAnswers, waitedMs?: number): void {
    const isFound = answers.some((answer) => typeof answer === 'string');
    if (isFound || answers.includes(false)) worth.ended(isFound, waitedMs);
    for (const [i, key] of keys.entries()) if (answers[i] === false) this.#leftHost.delete(key);
  }
}
