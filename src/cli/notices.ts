import { plainLines } from '../base/shown-text.ts';
import type { EngineEvent } from '../engine/contract.ts';
import { isLogged, logLine } from '../server/http/event-log.ts';
import type { LogLevel } from '../server/http/log-format.ts';
import { type LogFormat, logOf } from '../server/http/log-format.ts';
import type { TextSink } from './context.ts';

/** The destination of banners, progress and messages about the shutdown. */
export interface Notices extends TextSink {
  /** `text` for people at a terminal; in a log, the line `message` with `fields` instead. */
  tell(text: string, message: string, fields: EngineEvent['fields']): void;
}

/**
 * Notices are information: a higher log level prints none. They are lines of the log. At a terminal, a banner and a bar of
 * progress, which begins with `\r`, are written as they are.
 */
export function noticesOf(
  stderr: TextSink,
  { logLevel, logFormat }: { readonly logLevel: LogLevel; readonly logFormat: LogFormat },
): Notices {
  if (!isLogged('info', logLevel)) return { write: () => undefined, tell: () => undefined };
  const isTTY = logFormat === 'text' && stderr.isTTY === true;
  const lines = logOf(stderr, logFormat);
  const log = (message: string, fields: EngineEvent['fields'] = {}): void =>
    lines.write(logLine('info', message, fields));
  return {
    isTTY,
    write: (text) => (isTTY && text.startsWith('\r') ? stderr.write(text) : log(text.trim())),
    tell: (text, message, fields) => (isTTY ? stderr.write(plainLines(text)) : log(message, fields)),
  };
}
