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

export function formatLogLine(line: string): string {
  const { level, time, msg, pid, hostname, reqId, err, ...fields } = JSON.parse(line) as Record<string, unknown>;
  const at = new Date(Number(time)).toISOString();
  const words = [at, (LEVELS[Number(level)] ?? String(level)).padEnd(5), String(msg)];
  if (reqId !== undefined) words.push(`id=${formatValue(reqId)}`);
  for (const [name, value] of Object.entries(fields)) words.push(`${name}=${formatValue(value)}`);
  const stack = (err as { stack?: string } | undefined)?.stack;
  return `${words.join(' ')}${stack === undefined ? '' : `\n${stack}`}\n`;
}

function formatValue(value: unknown): string {
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  return /^[^\s"=]+$/.test(text) ? text : JSON.stringify(text);
}

/** A destination for pino that writes readable lines. */
export function readableLog(out: { write(text: string): unknown }): { write(line: string): void } {
  return {
    write(line) {
      out.write(formatLogLine(line));
    },
  };
}
