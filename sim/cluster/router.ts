import { assert } from '../../src/base/assert.ts';
import type { RequestStats } from '../../src/core/request.ts';
import type { TurnText } from './conversations.ts';
import type { Reply } from './engine-process.ts';
import { PrefixMap, prefixHashes } from './prefix-map.ts';
import type { Replica, RouterPort } from './replica.ts';
import type { SimulatedTime } from './simulated-time.ts';

export const routings = ['prefix', 'load'] as const;
export interface RouterOptions {
  /** `prefix`: the replica with the fewest tokens to compute, of those that wait there and of this prompt. `load`: without this prompt. */
  readonly routing: (typeof routings)[number];
  /** A replica probably has so many tokens in its pool. */
  readonly poolTokens: number;
}

export interface RouterClients {
  token(id: string, token: number): void;
  ended(id: string, stats: RequestStats): void;
}

/** A client's request, over all attempts. */
interface RoutedTurn {
  readonly turn: TurnText;
  readonly hashes: readonly number[];
  /** Tokens that the client has. */
  delivered: number;
  attempts: number;
  attempt: Attempt | undefined;
}

/** One request to one replica. */
interface Attempt {
  readonly id: string;
  readonly routed: RoutedTurn;
  readonly view: ReplicaView;
  /** Prompt tokens that the replica probably must compute; 0 after the first token. */
  waitingTokens: number;
  received: number;
}

/** What the router knows of a replica. */
interface ReplicaView {
  readonly replica: Replica;
  readonly prefixes: PrefixMap;
  readonly attempts: Set<Attempt>;
  isReady: boolean;
  heardMs: number;
}

const probeMs = 1000;
/** A replica that has not answered for so long gets no requests, and other replicas get its requests. */
const silenceMs = 3500;
/** A stream counts as much as so many tokens of a prompt that wait. */
const tokensOfStream = 16;

/**
 * Sends each request to the replica that will probably answer first. If the replica dies, drains or is silent, another replica gets the request
 * from its start: greedy and seeded sampling give the same tokens again, so the client gets those that it does not have.
 */
export class Router implements RouterPort {
  readonly #time: SimulatedTime;
  readonly #options: RouterOptions;
  readonly #clients: RouterClients;
  readonly #views: readonly ReplicaView[];
  readonly #turns = new Map<string, RoutedTurn>();
  readonly #attempts = new Map<string, Attempt>();
  /** No replica was ready for these. */
  readonly #waiting = new Set<RoutedTurn>();
  retries = 0;

  constructor(time: SimulatedTime, replicas: readonly Replica[], options: RouterOptions, clients: RouterClients) {
    this.#time = time;
    this.#options = options;
    this.#clients = clients;
    this.#views = replicas.map((replica) => ({
      replica,
      prefixes: new PrefixMap(options.poolTokens),
      attempts: new Set<Attempt>(),
      isReady: false,
      heardMs: 0,
    }));
    for (const view of this.#views) this.#probe(view);
  }

  submit(turn: TurnText): void {
    const routed = { turn, hashes: prefixHashes(turn.prompt), delivered: 0, attempts: 0, attempt: undefined };
    this.#turns.set(turn.id, routed);
    this.#dispatch(routed);
  }

  /** The client has left. */
  cancel(turnId: string): void {
    const routed = this.#turns.get(turnId);
    assert(routed !== undefined, `${turnId} is unknown to the router`);
    this.#turns.delete(turnId);
    this.#waiting.delete(routed);
    if (routed.attempt !== undefined) this.#giveUp(routed.attempt);
  }

  // --- What arrives from replicas ---

  ready(replica: number): void {
    const view = this.#views[replica]!;
    view.isReady = true;
    view.prefixes.clear();
    this.#hears(view);
  }

  alive(replica: number): void {
    this.#hears(this.#views[replica]!);
  }

  draining(replica: number): void {
    this.#views[replica]!.isReady = false;
  }

  connectionsLost(replica: number): void {
    const view = this.#views[replica]!;
    view.isReady = false;
    this.#retryAll(view);
  }

  refused(id: string): void {
    const attempt = this.#attempts.get(id);
    if (attempt === undefined) return;
    attempt.view.isReady = false;
    this.#retry(attempt);
  }

  replied(replies: readonly Reply[]): void {
    for (const reply of replies) {
      const attempt = this.#attempts.get(reply.id);
      // The replica did not know yet that the router has given the attempt up.
      if (attempt === undefined) continue;
      this.#deliver(attempt, reply);
    }
  }

  #deliver(attempt: Attempt, { tokens, end }: Reply): void {
    const { routed } = attempt;
    attempt.waitingTokens = 0;
    for (const token of tokens) {
      // The client has the tokens of earlier attempts.
      if (++attempt.received <= routed.delivered) continue;
      routed.delivered++;
      this.#clients.token(routed.turn.id, token);
    }
    if (end === undefined) return;
    this.#forget(attempt);
    this.#turns.delete(routed.turn.id);
    this.#clients.ended(routed.turn.id, end);
  }

  #hears(view: ReplicaView): void {
    view.heardMs = this.#time.nowMs();
    if (!view.isReady) return;
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const routed of waiting) this.#dispatch(routed);
  }

  #dispatch(routed: RoutedTurn): void {
    const { turn, hashes } = routed;
    const view = this.#choose(hashes, turn.prompt.length);
    if (view === undefined) {
      this.#waiting.add(routed);
      return;
    }
    const id = `${turn.id}#${++routed.attempts}`;
    const waitingTokens = turn.prompt.length - view.prefixes.matchedTokens(hashes);
    const attempt: Attempt = { id, routed, view, waitingTokens, received: 0 };
    routed.attempt = attempt;
    this.#attempts.set(id, attempt);
    view.attempts.add(attempt);
    view.prefixes.add(hashes);
    view.replica.fromRouter.send(() => view.replica.generate(id, turn.prompt, turn.expected.length));
  }

  /** The replica with the least work, of those that are ready. */
  #choose(hashes: readonly number[], promptLength: number): ReplicaView | undefined {
    let [best, bestWork] = [undefined as ReplicaView | undefined, Infinity];
    for (const view of this.#views) {
      if (!view.isReady || this.#isSilent(view)) continue;
      let work = this.#options.routing === 'prefix' ? promptLength - view.prefixes.matchedTokens(hashes) : 0;
      for (const { waitingTokens } of view.attempts) work += tokensOfStream + waitingTokens;
      if (work < bestWork) [best, bestWork] = [view, work];
    }
    return best;
  }

  #probe(view: ReplicaView): void {
    if (this.#isSilent(view)) this.#retryAll(view);
    view.replica.fromRouter.send(() => view.replica.probe());
    this.#time.after(probeMs, () => this.#probe(view));
  }

  #isSilent({ heardMs }: ReplicaView): boolean {
    return this.#time.nowMs() - heardMs > silenceMs;
  }

  #retryAll(view: ReplicaView): void {
    for (const attempt of [...view.attempts]) this.#retry(attempt);
  }

  #retry(attempt: Attempt): void {
    this.#giveUp(attempt);
    this.retries++;
    this.#dispatch(attempt.routed);
  }

  /** Replies to the attempt are ignored from now on. */
  #giveUp(attempt: Attempt): void {
    const { replica } = attempt.view;
    this.#forget(attempt);
    replica.fromRouter.send(() => replica.cancel(attempt.id));
  }

  #forget(attempt: Attempt): void {
    this.#attempts.delete(attempt.id);
    attempt.view.attempts.delete(attempt);
    attempt.routed.attempt = undefined;
  }
}
