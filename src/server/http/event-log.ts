import { hostname } from 'node:os';
import type { EngineEvent } from '../../engine/contract.ts';
import type { LogLevel } from './log-format.ts';

/** Pino's numbers. */
const severities = { info: 30, warn: 40, error: 50 } as const;
const thresholds: Readonly<Record<LogLevel, number>> = { silent: Infinity, error: 50, warn: 40, info: 30, debug: 20 };

/**
 * Writes an engine's events as lines of the server's log. It does not use the server's logger, because an engine can
 * send events while it is created, before there is a server.
 */
export function eventLog(
  destination: { write(line: string): void },
  logLevel: LogLevel,
  nowMs: () => number = Date.now,
): (event: EngineEvent) => void {
  return ({ level, message, fields }) => {
    if (isLogged(level, logLevel)) destination.write(logLine(level, message, fields, nowMs));
  };
}

export function isLogged(level: keyof typeof severities, threshold: LogLevel): boolean {
  return severities[level] >= thresholds[threshold];
}

/** A line as pino writes it. */
export function logLine(
  level: keyof typeof severities,
  message: string,
  fields: EngineEvent['fields'] = {},
  nowMs: () => number = Date.now,
): string {
  const head = { level: severities[level], time: nowMs(), pid: process.pid, hostname: hostname() };
  return `${JSON.stringify({ ...head, ...fields, msg: message })}\n`;
}
