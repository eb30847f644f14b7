import { describe, expect, it } from 'vitest';
import { formatLogLine, logOf } from './log-format.ts';

const time = Date.UTC(2026, 0, 2, 3, 4, 5);

it('writes the time, the level, the message and all fields in one line', () => {
  const line = {
    level: 30,
    time,
    pid: 1,
    hostname: 'h',
    reqId: 'req-1',
    path: '/v1/models',
    status: 200,
    msg: 'request',
  };
  expect(formatLogLine(JSON.stringify(line))).toBe(
    '2026-01-02T03:04:05.000Z info  request id=req-1 path=/v1/models status=200\n',
  );
});

it('quotes values with spaces and shows the stack of an error', () => {
  const line = {
    level: 50,
    time,
    pid: 1,
    hostname: 'h',
    what: 'a b',
    err: { stack: 'Error: x\n  at y' },
    msg: 'failed',
  };
  expect(formatLogLine(JSON.stringify(line))).toBe(
    '2026-01-02T03:04:05.000Z error failed what="a b"\nError: x\n  at y\n',
  );
});

it('writes readable lines to its destination', () => {
  const written: string[] = [];
  logOf({ write: (text) => written.push(text) }, 'text').write(JSON.stringify({ level: 40, time, msg: 'careful' }));
  expect(written).toEqual(['2026-01-02T03:04:05.000Z warn  careful\n']);
});

describe('a value from outside', () => {
  const forged = 'x\n2026-01-02T03:04:05.000Z error forged\u001b[2J\u009b1m\u202e\u2028\ud800';
  const written = (format: 'text' | 'json', fields: object): string => {
    let text = '';
    logOf({ write: (line) => (text += line) }, format).write(`${JSON.stringify({ level: 40, time, ...fields })}\n`);
    return text;
  };
  const places: [string, object][] = [
    ['the message', { msg: forged }],
    ['a field', { msg: 'm', ignored: forged }],
    ['a list', { msg: 'm', names: [forged, { name: forged }] }],
    ['a stack', { msg: 'm', err: { message: forged, stack: `Error: ${forged}\n    at f` } }],
  ];

  it.each(places)('makes no line of its own and no command of a terminal: %s', (_, fields) => {
    for (const format of ['text', 'json'] as const) {
      const text = written(format, fields);
      expect(text.split('\n').filter((line) => /^\d{4}-\S+ error/.test(line))).toEqual([]);
      expect(text.replaceAll('\n', '')).not.toMatch(/[\p{Cc}\p{Cs}\u2028\u2029\u202a-\u202e]/u);
    }
    const { time: _time, level: _level, ...read } = JSON.parse(written('json', fields)) as Record<string, unknown>;
    expect(read).toEqual(fields);
  });

  it.each(places)('is bounded: %s', (_, fields) => {
    const long = JSON.parse(JSON.stringify(fields).replaceAll('forged', 'f'.repeat(900_000))) as object;
    for (const format of ['text', 'json'] as const) expect(written(format, long).length).toBeLessThan(20_000);
  });
});
