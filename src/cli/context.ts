import type { AsyncEngine } from '../engine/contract.ts';
import type { EngineOptions } from '../engine/options.ts';

/** Everything a command touches of the world: given by `main.ts`, and by tests that want to watch. */
export interface CliContext {
  readonly version: string;
  /** Loads a model and starts its engine. Rejects with a KvasirError when the world is at fault. */
  createEngine(options: EngineOptions): Promise<AsyncEngine>;
  /** The command's result, and nothing else. */
  readonly stdout: TextSink;
  /** Banners, progress, logs, errors. */
  readonly stderr: TextSink;
  readStdin(): Promise<Uint8Array>;
  /** Where SIGINT and SIGTERM arrive: the process. */
  readonly signals: SignalSource;
  /** Ends the process and its child processes at once, whatever hangs. What was not written yet is lost. */
  exitNow(code: ExitCode): void;
}

export interface TextSink {
  write(text: string): unknown;
  /** Whether a person looks at it right now: then a line may be drawn over. */
  readonly isTTY?: boolean;
}

export interface SignalSource {
  on(signal: 'SIGINT' | 'SIGTERM', listener: () => void): unknown;
  off(signal: 'SIGINT' | 'SIGTERM', listener: () => void): unknown;
}

/**
 * What the shell gets: 0 all is well, 1 the world's fault, 2 the command line's; 130 and 143 when SIGINT or SIGTERM has cut
 * work off.
 */
export type ExitCode = 0 | 1 | 2 | 130 | 143;
