import { assert, assertDefined } from '../base/assert.ts';
import { dieWithParent, exitAtOnce } from '../ggml/libc.ts';
import type { AdapterSource } from '../ggml/lora-adapter.ts';
import { encodeError } from './error-codec.ts';
import type { LocalRank, UpstreamOutput } from './rank.ts';
import { StepDecoder } from './step-codec.ts';
import { encodeOutput, type FromWorker, type ToWorker } from './worker-messages.ts';

export interface WorkerHooks {
  readonly onProgress: (loadedBytes: number, totalBytes: number) => void;
  /** Transfers have ended outside a step. */
  readonly wake: () => void;
  /** Receives events for the operator, such as a kernel that is not available. */
  readonly event?: (message: string) => void;
}

/** Opens the rank of this process from the engine's setup. */
export type OpenRank<Setup> = (setup: Setup, hooks: WorkerHooks) => Promise<LocalRank>;

/**
 * Makes this process a worker: it opens a rank and serves its steps until the `close` message. It ends with the engine's
 * process at the latest. It ignores the signals that a terminal sends to all its processes, because the engine drains and
 * then closes its workers.
 */
export function serveRank<Setup>(open: OpenRank<Setup>): void {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGBREAK', 'SIGHUP'] as const) process.on(signal, () => undefined);
  const server = new RankServer(open);
  process.on('message', (message) => server.receive(message as ToWorker<Setup>));
  process.on('disconnect', exitNow);
  dieWithParent();
  if (!process.connected) exitNow();
}

class RankServer<Setup> {
  readonly #open: OpenRank<Setup>;
  readonly #decoder = new StepDecoder();
  #rank: LocalRank | undefined;
  #upstream: { resolve(output: UpstreamOutput): void; reject(error: Error): void } | undefined;
  #running: Promise<void> | undefined;
  #isNotified: boolean = false;

  constructor(open: OpenRank<Setup>) {
    this.#open = open;
  }

  receive(message: ToWorker<Setup>): void {
    switch (message.kind) {
      case 'open':
        void this.#openRank(message.setup);
        break;
      case 'step':
        this.#running = this.#runStep(message);
        break;
      case 'draft':
        this.#running = this.#draft(message);
        break;
      case 'upstream':
        this.#upstream?.resolve(message.output);
        break;
      case 'upstreamFailed':
        this.#upstream?.reject(new UpstreamFailed('the rank before has failed'));
        break;
      case 'loadAdapter':
        void this.#loadAdapter(message.source);
        break;
      case 'unloadAdapter':
        void this.#rank?.unloadAdapter(message.digest);
        break;
      case 'administer':
        void this.#administer(message);
        break;
      case 'ping':
        send({ kind: 'pong', isComputing: this.#rank?.isComputing ?? false });
        break;
      case 'close':
        void this.#close(message.timeoutMs);
        break;
    }
  }

  async #openRank(setup: Setup): Promise<void> {
    try {
      const rank = await this.#open(setup, {
        onProgress: (loadedBytes, totalBytes) => send({ kind: 'progress', loadedBytes, totalBytes }),
        wake: () => this.#wake(),
        event: (message) => send({ kind: 'notice', message }),
      });
      this.#rank = rank;
      const { kvCacheSpec, identity, attentionDescription } = rank;
      send({ kind: 'ready', facts: { kvCacheSpec, identity, attentionDescription } });
    } catch (error) {
      send({ kind: 'openFailed', error: encodeError(error) }, exitNow);
    }
  }

  async #runStep({ step, hasUpstream }: Extract<ToWorker<Setup>, { kind: 'step' }>): Promise<void> {
    const rank = assertDefined(this.#rank, 'a step before the rank is open');
    this.#isNotified = false;
    try {
      const plan = this.#decoder.decode(step);
      const output = await rank.execute(plan, hasUpstream ? this.#awaitUpstream() : undefined);
      send({ kind: 'output', output: encodeOutput(output), timings: rank.timings() });
    } catch (error) {
      // No message: the engine ends because of the other rank.
      if (error instanceof UpstreamFailed) return;
      send({ kind: 'broken', error: encodeError(error) }, exitNow);
    } finally {
      this.#upstream = undefined;
    }
  }

  async #loadAdapter(source: AdapterSource): Promise<void> {
    const { digest } = source;
    try {
      await assertDefined(this.#rank, 'an adapter before the rank is open').loadAdapter(source);
      send({ kind: 'adapterLoaded', digest });
    } catch (error) {
      send({ kind: 'adapterLoaded', digest, error: encodeError(error) });
    }
  }

  async #administer({ id, order }: Extract<ToWorker<Setup>, { kind: 'administer' }>): Promise<void> {
    try {
      const rank = assertDefined(this.#rank, 'an order before the rank is open');
      const answer = await assertDefined(rank.administer, 'a rank in this process takes orders').call(rank, order);
      send({ kind: 'administered', id, answer });
    } catch (error) {
      send({ kind: 'administered', id, error: encodeError(error) });
    }
  }

  async #draft({ requests, count }: Extract<ToWorker<Setup>, { kind: 'draft' }>): Promise<void> {
    const rank = assertDefined(this.#rank, 'drafts before the rank is open');
    try {
      assert(rank.draft !== undefined, 'the last rank drafts');
      send({ kind: 'drafts', drafts: await rank.draft(requests, count) });
    } catch (error) {
      send({ kind: 'broken', error: encodeError(error) }, exitNow);
    }
  }

  #awaitUpstream(): Promise<UpstreamOutput> {
    assert(this.#upstream === undefined, 'one step at a time');
    const upstream = new Promise<UpstreamOutput>((resolve, reject) => {
      this.#upstream = { resolve, reject };
    });
    // The step may wait for its loads before it awaits this promise.
    upstream.catch(() => undefined);
    return upstream;
  }

  /** Sends one message between two steps, because the next step reports all transfers that have ended. */
  #wake(): void {
    if (this.#isNotified) return;
    this.#isNotified = true;
    send({ kind: 'wake' });
  }

  async #close(timeoutMs: number): Promise<void> {
    await this.#running;
    await this.#rank?.close({ timeoutMs });
    exitAtOnce(0);
  }
}

/** Another rank has failed, and so the engine ends the step. */
class UpstreamFailed extends Error {}

function send(message: FromWorker, onSent: () => void = () => undefined): void {
  process.send?.(message, undefined, undefined, onSent);
}

/**
 * Ends the process without the destructors of native libraries, because their threads may still run. The engine needs
 * nothing more from this process.
 */
function exitNow(): void {
  process.kill(process.pid, 'SIGKILL');
}
