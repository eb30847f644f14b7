import type { Readable, Writable } from 'node:stream';
import type { AsyncEngine } from '../engine/contract.ts';
import type { EngineOptions } from '../engine/options.ts';
import type { GpuMemory } from '../ggml/device.ts';
import type { GgufFile } from '../ggml/gguf.ts';
import type { GpuShare } from './size/gpu-share.ts';

/** The inputs and outputs of a command; `main.ts` and tests provide them. */
export interface CliContext {
  readonly version: string;
  /**
   * Rejects with the error that `createEngine` would have before it reads weights. Absent: nothing is checked before a
   * server listens. `checksModel`: false for the options of several models.
   */
  checkEngineOptions?(options: EngineOptions, checksModel: boolean): Promise<void>;
  /** What of a model would be on this GPU, by default the machine's; undefined: nothing. Absent: there is no GPU. */
  shareOnGpu?(options: EngineOptions, file: GgufFile, gpu?: GpuMemory): Promise<GpuShare | undefined>;
  /** Loads a model and starts its engine. Rejects with a KvasirError, except for bugs. */
  createEngine(options: EngineOptions): Promise<AsyncEngine>;
  /** Only the command's result. */
  readonly stdout: TextSink;
  /** Banners, progress, logs, errors. */
  readonly stderr: TextSink;
  readonly stdin: Readable;
  /** Present if input and output are a terminal, where a user edits lines. */
  readonly terminal?: Terminal;
  /** Whether a terminal is an input or an output of the process. Absent: no. */
  readonly hasTerminal?: boolean;
  /** The source of SIGINT, SIGTERM, SIGBREAK and SIGHUP: the process. */
  readonly signals: SignalSource;
  /** Ends the process and its child processes at once, even if a thread hangs. Unwritten output is lost. */
  exitNow(code: ExitCode): void;
}

export interface Terminal {
  readonly input: Readable;
  readonly output: Writable;
}

export interface TextSink {
  write(text: string): unknown;
  /** Whether the output is a terminal: then a line may be overwritten. */
  readonly isTTY?: boolean;
}

export interface SignalSource {
  on(signal: 'SIGINT' | 'SIGTERM' | 'SIGBREAK' | 'SIGHUP', listener: () => void): unknown;
  off(signal: 'SIGINT' | 'SIGTERM' | 'SIGBREAK' | 'SIGHUP', listener: () => void): unknown;
}

/**
 * 0: success. 1: an error. 2: a wrong command line. 129, 130 and 143: the command was ended early by SIGHUP, SIGINT or SIGTERM.
 */
export type ExitCode = 0 | 1 | 2 | SignalExitCode;
export type SignalExitCode = 129 | 130 | 143;
