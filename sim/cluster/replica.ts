import { Prng } from '../../src/base/prng.ts';
import { requestId } from '../../src/core/ids.ts';
import type { EngineRequest } from '../../src/core/request.ts';
import { makeRequest } from '../workload.ts';
import { EngineProcess, type EngineProcessOptions, type Reply, type Surroundings } from './engine-process.ts';
import type { Link } from './link.ts';
import type { SimulatedTime } from './simulated-time.ts';

/** What a replica sends to the router, by its link. */
export interface RouterPort {
  /** The replica has started and takes requests. */
  ready(replica: number): void;
  /** The replica takes no further requests. */
  draining(replica: number): void;
  /** The replica's process has ended, and with it its connections. */
  connectionsLost(replica: number): void;
  /** The replica does not take this request. */
  refused(id: string): void;
  replied(replies: readonly Reply[]): void;
  /** The answer to a probe. */
  alive(replica: number): void;
}

export interface RouterConnection {
  readonly toRouter: Link;
  readonly fromRouter: Link;
  router(): RouterPort;
}

export interface ReplicaOptions {
  readonly engine: EngineProcessOptions;
  /** From the start of the process until it takes requests: the model is loaded. */
  readonly startMs: number;
}

/**
 * A server that comes and goes:
 *
 *   starting --> ready --> draining --> starting         (an upgrade)
 *       ^----------|----------|                          (a crash: memory, requests and connections are lost)
 */
export class Replica {
  readonly index: number;
  readonly toRouter: Link;
  readonly fromRouter: Link;
  readonly #time: SimulatedTime;
  readonly #surroundings: Surroundings;
  readonly #options: ReplicaOptions;
  readonly #router: () => RouterPort;
  #state: 'starting' | 'ready' | 'draining' = 'starting';
  #engine: EngineProcess | undefined;
  #life = 0;
  #pausedUntilMs = 0;
  #steps = 0;
  #computedTokens = 0;

  constructor(index: number, connection: RouterConnection, surroundings: Surroundings, options: ReplicaOptions) {
    this.index = index;
    this.toRouter = connection.toRouter;
    this.fromRouter = connection.fromRouter;
    this.#router = connection.router;
    this.#surroundings = surroundings;
    this.#time = surroundings.time;
    this.#options = options;
    this.#becomeReady();
  }

  get steps(): number {
    return this.#steps + (this.#engine?.steps ?? 0);
  }

  get computedTokens(): number {
    return this.#computedTokens + (this.#engine?.computedTokens ?? 0);
  }

  get isReady(): boolean {
    return this.#state === 'ready';
  }

  // --- What arrives from the router ---

  generate(id: string, prompt: Int32Array, maxTokens: number): void {
    this.#unlessPaused(() => {
      if (this.#state !== 'ready') this.#send((router) => router.refused(id));
      else this.#engine!.add(this.#request(id, prompt, maxTokens));
    });
  }

  /** Equal ids have an equal salt: the answers of all replicas to a request are equal. */
  #request(id: string, prompt: Int32Array, maxTokens: number): EngineRequest {
    const { stack } = this.#options.engine;
    const drawn = new Prng(Number(id.replace(/\D/g, '')));
    const cacheSalt = stack?.quotaBlocks === undefined ? {} : { cacheSalt: `salt ${drawn.between(1, 3)}` };
    const isLeased = stack !== undefined && drawn.chance(stack.remoteDecodeShare);
    const transfer = isLeased ? { kvTransferParams: { do_remote_decode: true } } : {};
    return makeRequest(id, prompt, { ...cacheSalt, ...transfer, params: { maxTokens, ignoreEos: true } });
  }

  cancel(id: string): void {
    this.#unlessPaused(() => this.#engine?.abort(requestId(id)));
  }

  probe(): void {
    this.#unlessPaused(() => {
      if (this.#state !== 'starting') this.#send((router) => router.alive(this.index));
    });
  }

  // --- Faults and orders ---

  /** False: there is nothing to order. */
  order(prng: Prng): boolean {
    return this.#state === 'ready' && this.#engine!.order(prng);
  }

  /** Nothing is being written to tiers. */
  get isSettled(): boolean {
    return this.#engine?.isSettled ?? true;
  }

  /** See `StackShelf`, as `checkWritten`. */
  get hasWrittenAll(): boolean {
    return this.#engine?.hasWrittenAll ?? true;
  }

  checkWritten(): void {
    this.#engine?.checkWritten();
  }

  crash(): void {
    if (this.#state !== 'starting') this.#restart();
  }

  drain(): void {
    if (this.#state !== 'ready') return;
    this.#state = 'draining';
    this.#send((router) => router.draining(this.index));
    this.#engine!.close();
  }

  pause(untilMs: number): void {
    if (this.#state === 'starting') return;
    this.#pausedUntilMs = Math.max(this.#pausedUntilMs, untilMs);
    this.#engine?.pause(this.#pausedUntilMs);
  }

  /** The process ends. Messages that it has not read are lost with its connections. */
  #restart(): void {
    this.#send((router) => router.connectionsLost(this.index));
    this.#steps = this.steps;
    this.#computedTokens = this.computedTokens;
    this.#engine!.kill();
    this.#engine = undefined;
    this.#pausedUntilMs = 0;
    this.#life++;
    this.#state = 'starting';
    this.#time.after(this.#options.startMs, () => this.#becomeReady());
  }

  #becomeReady(): void {
    const life = this.#life;
    const events = {
      replied: (replies: readonly Reply[]) => this.#send((router) => router.replied(replies)),
      closed: () => {
        if (this.#life === life) this.#restart();
      },
    };
    const garbage = 1 + this.index + 1000 * life;
    this.#engine = new EngineProcess(this.#surroundings, this.#options.engine, events, garbage);
    this.#state = 'ready';
    this.#send((router) => router.ready(this.index));
  }

  #send(message: (router: RouterPort) => void): void {
    this.toRouter.send(() => message(this.#router()));
  }

  /** A process that is stopped reads its messages when it goes on. A message to a process that has died is lost. */
  #unlessPaused(read: () => void, life = this.#life): void {
    const leftMs = this.#pausedUntilMs - this.#time.nowMs();
    if (this.#life !== life) return;
    if (leftMs <= 0) read();
    else this.#time.after(leftMs, () => this.#unlessPaused(read, life));
  }
}
