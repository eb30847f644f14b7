import { type Clock, systemClock } from '../base/clock.ts';
import type { Server } from '../server/server.ts';
import type { ExitCode, TextSink } from './context.ts';
import type { InterruptionOptions } from './interrupt.ts';

/** The time for closing the engine and its worker processes after the shutdown timeout. */
const closeMs = 750;

/** The longest time for sending the last spans. They are sent beside the closing of the engine, which comes first. */
const tracesMaxMs = 2000;
const tracesMinMs = 250;

/** What an end needs of a server. */
export type EndingServer = Pick<Server, 'requestCount' | 'drain'>;

/** Ends `kvasir serve` and reports it on stderr. */
export class ServerEnd {
  readonly #timeoutSeconds: number;
  readonly #stderr: TextSink;
  readonly #clock: Clock;
  /** Set while `drain` waits for requests. */
  #draining: EndingServer | undefined;
  #isDrained: boolean = false;
  #beganMs: number | undefined;

  constructor(timeoutSeconds: number, stderr: TextSink, clock: Clock = systemClock) {
    this.#timeoutSeconds = timeoutSeconds;
    this.#stderr = stderr;
    this.#clock = clock;
  }

  /** The process ends within the shutdown timeout plus one second, and at once at a second signal. */
  get limits(): InterruptionOptions {
    return { graceMs: this.#timeoutSeconds * 1000 + closeMs, onCutOff: (cause) => this.#cutOff(cause) };
  }

  /** The time for the last spans. It ends before the process is ended early. */
  get tracesMs(): number {
    const elapsedMs = this.#beganMs === undefined ? 0 : this.#clock.nowMs() - this.#beganMs;
    const leftMs = this.#timeoutSeconds * 1000 + closeMs - elapsedMs;
    return Math.min(tracesMaxMs, Math.max(tracesMinMs, leftMs - tracesMinMs));
  }

  /** @returns whether every request ended by itself. */
  async drain(server: EndingServer): Promise<boolean> {
    this.#beganMs = this.#clock.nowMs();
    this.#draining = server;
    const running = server.requestCount;
    const limit = `for ${this.#timeoutSeconds} s at most`;
    this.#say(
      running === 0 ? 'shutting down: no request is running' : `shutting down: ${areRunning(running)}, ${limit}`,
    );
    const outcome = await server.drain(this.#timeoutSeconds * 1000);
    this.#draining = undefined;
    this.#isDrained = outcome.how === 'drained';
    if (outcome.how === 'cut') this.#say(`${this.#timeoutIsOver()}: ${wereAborted(outcome.aborted)}`);
    else if (running > 0) this.#say(running === 1 ? 'the running request ended' : `all ${running} requests ended`);
    return this.#isDrained;
  }

  #cutOff(cause: 'deadline' | 'signal'): ExitCode | undefined {
    const how = cause === 'signal' ? 'stopped by a second signal' : this.#timeoutIsOver();
    // After `drain`, only saves of KV and worker processes can delay the end.
    const what =
      this.#draining === undefined ? 'the engine was not closed yet' : wereAborted(this.#draining.requestCount);
    this.#say(`${how}: ${what}`);
    return this.#isDrained ? 0 : undefined;
  }

  #timeoutIsOver(): string {
    return `the shutdown timeout of ${this.#timeoutSeconds} s is over`;
  }

  #say(line: string): void {
    this.#stderr.write(`${line}\n`);
  }
}

const areRunning = (count: number): string => (count === 1 ? '1 request is running' : `${count} requests are running`);

const wereAborted = (count: number): string =>
  count === 1 ? '1 request was aborted' : `${count === 0 ? 'no' : count} requests were aborted`;
