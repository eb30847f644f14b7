import type { Clock } from '../base/clock.ts';
import type { ReasoningFormat, ToolFormat } from '../tools/formats.ts';

export type LogLevel = 'silent' | 'error' | 'warn' | 'info' | 'debug';

export interface ServerOptions {
  readonly version: string;
  readonly apiKey?: string;
  /** Larger bodies are refused with status 413. */
  readonly bodyMaxBytes?: number;
  /** The largest number of prompts times `n` in one request. */
  readonly choicesMax?: number;
  readonly keepAliveMs?: number;
  readonly stallTimeoutMs?: number;
  readonly logLevel?: LogLevel;
  /** Receives pino's lines; default: readable lines on stderr. */
  readonly logDestination?: { write(line: string): void };
  /** How the model writes calls of tools; default: what its chat template asks for. */
  readonly toolFormat?: ToolFormat;
  /** How it writes its thoughts, which become `reasoning_content`; default: by its chat template. */
  readonly reasoningFormat?: ReasoningFormat | 'none';
  readonly clock?: Clock;
}

export const serverDefaults = {
  bodyMaxBytes: 8 * 1024 * 1024,
  choicesMax: 128,
  keepAliveMs: 15_000,
  stallTimeoutMs: 120_000,
  logLevel: 'info',
} as const satisfies Partial<ServerOptions>;
