import type { EngineEvent } from '../engine/contract.ts';
import { isLogged, logLine } from '../server/event-log.ts';
import type { LogLevel } from '../server/server-options.ts';
import type { TextSink } from './context.ts';

/** The destination of banners, progress and messages about the shutdown. */
export interface Notices extends TextSink {
  /** `text` for people; in a log of JSON lines, `message` with `fields` instead. */
  tell(text: string, message: string, fields: EngineEvent['fields']): void;
}

/** Notices are information: a higher log level prints none. With log format `json`, each is a line of the log. */
export function noticesOf(
  stderr: TextSink,
  { logLevel, logFormat }: { readonly logLevel: LogLevel; readonly logFormat: 'text' | 'json' },
): Notices {
  if (!isLogged('info', logLevel)) return { write: () => undefined, tell: () => undefined };
  if (logFormat === 'text')
    return { isTTY: stderr.isTTY === true, write: (text) => stderr.write(text), tell: (text) => stderr.write(text) };
  return {
    write: (text) => stderr.write(logLine('info', text.trim())),
    tell: (_, message, fields) => stderr.write(logLine('info', message, fields)),
  };
}
