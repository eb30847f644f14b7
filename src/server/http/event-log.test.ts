import { expect, it } from 'vitest';
import type { EngineEvent } from '../../engine/contract.ts';
import { eventLog } from './event-log.ts';
import { logOf } from './log-format.ts';

const event: EngineEvent = { level: 'warn', message: 'A load failed.', fields: { requests: 2, tokens: 32 } };
const time = Date.UTC(2026, 0, 2, 3, 4, 5);

it('writes a line in the format of the server log, JSON or readable', () => {
  const lines: string[] = [];
  const out = { write: (line: string) => void lines.push(line) };
  eventLog(out, 'info', () => time)(event);
  eventLog(logOf(out, 'text'), 'info', () => time)({ ...event, level: 'error' });
  expect(JSON.parse(lines[0]!)).toMatchObject({
    level: 40,
    time,
    pid: process.pid,
    requests: 2,
    tokens: 32,
    msg: 'A load failed.',
  });
  expect(lines[0]!.endsWith('\n')).toBe(true);
  expect(lines[1]).toBe('2026-01-02T03:04:05.000Z error A load failed. requests=2 tokens=32\n');
});

it.each([
  ['silent', 0],
  ['error', 1],
  ['warn', 2],
  ['debug', 2],
] as const)('with --log-level %s, %i of a warning and an error are logged', (level, count) => {
  const lines: string[] = [];
  const log = eventLog({ write: (line) => void lines.push(line) }, level);
  log(event);
  log({ ...event, level: 'error' });
  expect(lines).toHaveLength(count);
});
