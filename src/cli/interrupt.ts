import { setMaxListeners } from 'node:events';
import { backgroundTimers } from '../base/background-timers.ts';
import type { Timer, Timers } from '../base/timers.ts';
import type { CliContext, ExitCode, SignalExitCode, SignalSource } from './context.ts';

/** When an engine closes, its saves may take 5 s and its worker processes 2 s more. */
const graceMsDefault = 10_000;

export interface InterruptionOptions {
  /** The time between the first signal and the forced end of the process. */
  readonly graceMs?: number;
  /** Called before the process ends early: reports the aborted requests, and can return another exit code. */
  readonly onCutOff?: (cause: 'deadline' | 'signal') => ExitCode | undefined;
  readonly timers?: Timers;
}

/**
 * Handles SIGINT and SIGTERM for one command, and Windows' Ctrl-Break (SIGBREAK), which programs can send there. The first signal asks the command to end. A second signal, or the end of
 * the grace period, ends the process at once, even if a thread or a process hangs.
 */
export class Interruption implements Disposable {
  readonly #first = new AbortController();
  readonly #context: Pick<CliContext, 'exitNow'>;
  readonly #source: SignalSource;
  readonly #options: InterruptionOptions;
  readonly #onInterrupt = (): void => this.#receive(130);
  readonly #onTerminate = (): void => this.#receive(143);
  #exitCode: SignalExitCode = 130;
  #deadline: Timer | undefined;

  constructor(context: Pick<CliContext, 'signals' | 'exitNow'>, options: InterruptionOptions = {}) {
    // Each request of a command may listen.
    setMaxListeners(0, this.#first.signal);
    this.#context = context;
    this.#source = context.signals;
    this.#options = options;
    this.#source.on('SIGINT', this.#onInterrupt);
    this.#source.on('SIGTERM', this.#onTerminate);
    this.#source.on('SIGBREAK', this.#onTerminate);
  }

  /** Aborted at the first signal. */
  get signal(): AbortSignal {
    return this.#first.signal;
  }

  /** 128 plus the number of the last signal, as shells report it. */
  get exitCode(): SignalExitCode {
    return this.#exitCode;
  }

  /** Counts as a signal: a SIGHUP that a command does not handle in another way. */
  hangUp(): void {
    this.#receive(129);
  }

  [Symbol.dispose](): void {
    this.#deadline?.cancel();
    this.#source.off('SIGINT', this.#onInterrupt);
    this.#source.off('SIGTERM', this.#onTerminate);
    this.#source.off('SIGBREAK', this.#onTerminate);
  }

  #receive(exitCode: SignalExitCode): void {
    this.#exitCode = exitCode;
    if (this.#first.signal.aborted) {
      this.#cutOff('signal');
      return;
    }
    const { graceMs = graceMsDefault, timers = backgroundTimers } = this.#options;
    this.#deadline = timers.after(graceMs, () => this.#cutOff('deadline'));
    this.#first.abort();
  }

  #cutOff(cause: 'deadline' | 'signal'): void {
    const exitCode = this.#options.onCutOff?.(cause);
    this.#context.exitNow(exitCode ?? this.#exitCode);
  }
}

/** Undefined if the signal is aborted before `work` ends. Work that cannot be stopped ends with the process. */
export async function orInterrupted<T>(work: Promise<T>, signal: AbortSignal): Promise<T | undefined> {
  const stopListening = new AbortController();
  work.catch(() => undefined);
  try {
    return await Promise.race([work, aborted(signal, stopListening.signal).then(() => undefined)]);
  } finally {
    stopListening.abort();
  }
}

/** Resolves when the signal is aborted, unless `noLonger` is aborted before. */
export function aborted(signal: AbortSignal, noLonger?: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    signal.addEventListener('abort', () => resolve(), {
      once: true,
      ...(noLonger === undefined ? {} : { signal: noLonger }),
    });
  });
}
