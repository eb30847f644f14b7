import { bounded, oneLine } from '../../base/shown-text.ts';

/**
 * Formats pino's lines (one JSON object each) for people:
 *
 *     2026-11-26T10:31:07.250Z info  request id=req-1 path=/v1/completions status=200 promptTokens=12 durationMs=40.2
 *
 * The line has all fields of the JSON object.
 */
const LEVELS: Readonly<Record<number, string>> = {
  10: 'trace',
  20: 'debug',
  30: 'info',
  40: 'warn',
  50: 'error',
  60: 'fatal',
};

/** The least severe lines that the log has. */
export type LogLevel = 'silent' | 'error' | 'warn' | 'info' | 'debug';

export type LogFormat = 'text' | 'json';

/** The longest text in a line: clients choose names and values. A stack has several lines. */
const lengthMax = 2000;
const stackLengthMax = 8000;

/** Every line of a log goes through this, in both formats: no value makes a line of its own, and none is long. */
export function logOf(out: { write(text: string): unknown }, format: LogFormat): { write(line: string): void } {
  const formatted = format === 'text' ? formatLogLine : jsonLogLine;
  return {
    write(line) {
      out.write(formatted(line));
    },
  };
}

export function formatLogLine(line: string): string {
  const { level, time, msg, pid, hostname, reqId, err, ...fields } = boundedFields(line);
  const at = new Date(Number(time)).toISOString();
  const words = [at, (LEVELS[Number(level)] ?? String(level)).padEnd(5), String(msg)];
  if (reqId !== undefined) words.push(`id=${formatValue(reqId)}`);
  for (const [name, value] of Object.entries(fields)) words.push(`${name}=${formatValue(value)}`);
  const stack = (err as { stack?: string } | undefined)?.stack;
  return `${oneLine(words.join(' '))}${stack === undefined ? '' : `\n${indented(stack)}`}\n`;
}

const jsonLogLine = (line: string): string =>
  `${oneLine(line.length <= lengthMax ? line.trimEnd() : JSON.stringify(boundedFields(line)))}\n`;

const boundedFields = (line: string): Record<string, unknown> =>
  JSON.parse(line, (name, value: unknown) =>
    typeof value === 'string' ? bounded(value, name === 'stack' ? stackLengthMax : lengthMax) : value,
  ) as Record<string, unknown>;

/** A line of a message within a stack does not look like a line of the log. */
const indented = (stack: string): string =>
  stack
    .split('\n')
    .map((line, i) => (i === 0 || /^\s/.test(line) ? '' : '  ') + oneLine(line))
    .join('\n');

function formatValue(value: unknown): string {
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  return /^[^\s"=]+$/.test(text) ? text : JSON.stringify(text);
}
