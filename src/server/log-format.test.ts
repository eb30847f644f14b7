import { expect, it } from 'vitest';
import { formatLogLine, readableLog } from './log-format.ts';

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
  readableLog({ write: (text) => written.push(text) }).write(JSON.stringify({ level: 40, time, msg: 'careful' }));
  expect(written).toEqual(['2026-01-02T03:04:05.000Z warn  careful\n']);
});
