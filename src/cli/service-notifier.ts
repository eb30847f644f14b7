import { type DatagramOutcome, sendDatagram } from '../base/unix-datagram.ts';
import type { EngineEvent } from '../engine/contract.ts';

export interface NotifierOptions {
  /** Has NOTIFY_SOCKET and WATCHDOG_USEC, if a service manager sets them. */
  readonly environment: Readonly<Record<string, string | undefined>>;
  onEvent(event: EngineEvent): void;
  /** While false, the watchdog gets no sign of life, and systemd restarts the service. */
  isAlive(): boolean;
  readonly send?: (path: string, text: string) => DatagramOutcome;
}

type State = 'loading' | 'ready' | 'stopping';

/** By how much each report of progress extends the time limit of a start. */
const loadExtensionSeconds = 120;
/** After the shutdown timeout, the time for closing the engine. */
const closeSeconds = 5;
const retryMs = 100;

/**
 * Tells systemd, or another service manager with its protocol, the state of the server (`sd_notify(3)`):
 *
 *     STATUS=progress ... READY=1 (WATCHDOG=1)* (RELOADING=1 READY=1)* STOPPING=1
 *
 * A message that the manager has no room for is sent later, together with the messages after it.
 */
export class ServiceNotifier implements Disposable {
  readonly #path: string;
  readonly #options: NotifierOptions;
  readonly #send: (path: string, text: string) => DatagramOutcome;
  /** Not sent yet, in order. A report of progress replaces the one before it. */
  readonly #waiting: string[] = [];
  #retry: NodeJS.Timeout | undefined;
  readonly #watchdog: NodeJS.Timeout | undefined;
  #state: State = 'loading';
  #hasWarned: boolean = false;

  private constructor(path: string, options: NotifierOptions) {
    this.#path = path;
    this.#options = options;
    this.#send = options.send ?? sendDatagram;
    const periodMs = watchdogMs(options.environment);
    if (periodMs !== undefined) this.#watchdog = setInterval(() => this.#beat(), periodMs / 2).unref();
  }

  /** Undefined if no service manager listens. */
  static open(options: NotifierOptions): ServiceNotifier | undefined {
    const path = options.environment.NOTIFY_SOCKET;
    if (path === undefined || path === '') return undefined;
    if (process.platform === 'linux' && /^[/@]./.test(path)) return new ServiceNotifier(path, options);
    const message = `NOTIFY_SOCKET is ${path}, which this server cannot use: the service manager is not told when it is ready.`;
    options.onEvent({ level: 'warn', message, fields: {} });
    return undefined;
  }

  /** The load makes progress. */
  loading(status: string): void {
    if (this.#state === 'loading')
      this.#tell(statusLine(status), `EXTEND_TIMEOUT_USEC=${loadExtensionSeconds * 1_000_000}`);
  }

  ready(status: string): void {
    if (this.#state === 'stopping') return;
    this.#state = 'ready';
    this.#tell('READY=1', statusLine(status));
  }

  /** Around a reload of settings, for services of `Type=notify-reload`. */
  reloading(): void {
    const microseconds = process.hrtime.bigint() / 1000n;
    if (this.#state === 'ready') this.#tell('RELOADING=1', `MONOTONIC_USEC=${microseconds}`);
  }

  reloaded(): void {
    if (this.#state === 'ready') this.#tell('READY=1');
  }

  stopping(shutdownSeconds: number): void {
    if (this.#state === 'stopping') return;
    this.#state = 'stopping';
    const microseconds = (shutdownSeconds + closeSeconds) * 1_000_000;
    this.#tell('STOPPING=1', 'STATUS=The server shuts down.', `EXTEND_TIMEOUT_USEC=${microseconds}`);
  }

  [Symbol.dispose](): void {
    clearInterval(this.#watchdog);
    clearTimeout(this.#retry);
  }

  /** The watchdog does not wait for a message before it. */
  #beat(): void {
    if (this.#options.isAlive()) this.#send(this.#path, 'WATCHDOG=1');
  }

  #tell(...lines: string[]): void {
    const message = lines.join('\n');
    if (isProgress(message) && isProgress(this.#waiting.at(-1))) this.#waiting.pop();
    this.#waiting.push(message);
    if (this.#retry === undefined) this.#flush();
  }

  #flush(): void {
    this.#retry = undefined;
    for (;;) {
      const [message] = this.#waiting;
      if (message === undefined) return;
      const outcome = this.#send(this.#path, message);
      if (outcome === 'full') {
        this.#retry = setTimeout(() => this.#flush(), retryMs).unref();
        return;
      }
      this.#waiting.shift();
      if (outcome !== 'sent') this.#warn(outcome.error);
    }
  }

  #warn(error: string): void {
    if (this.#hasWarned) return;
    this.#hasWarned = true;
    const message = `The service manager at ${this.#path} cannot be told the state of the server (${error}).`;
    this.#options.onEvent({ level: 'warn', message, fields: {} });
  }
}

const isProgress = (message: string | undefined): boolean => message?.startsWith('STATUS=') === true;

/** A line break would begin another assignment. */
const statusLine = (text: string): string => `STATUS=${text.replaceAll(/[\r\n]+/g, ' ')}`;

/** The period in which the manager wants a sign of life from this process. */
function watchdogMs({ WATCHDOG_USEC, WATCHDOG_PID }: NotifierOptions['environment']): number | undefined {
  const microseconds = Number(WATCHDOG_USEC);
  const isForThisProcess = WATCHDOG_PID === undefined || Number(WATCHDOG_PID) === process.pid;
  return isForThisProcess && microseconds > 0 ? microseconds / 1000 : undefined;
}
