import { expect, it } from 'vitest';
import type { EngineNotice } from '../engine/contract.ts';
import { readableLog } from './log-format.ts';
import { noticeLog } from './notice-log.ts';

const notice: EngineNotice = { level: 'warn', message: 'KV was lost.', fields: { requests: 2, tokens: 32 } };
const time = Date.UTC(2026, 0, 2, 3, 4, 5);

it('writes a line as the server does, for machines or for people', () => {
  const lines: string[] = [];
  const out = { write: (line: string) => void lines.push(line) };
  noticeLog(out, 'info', () => time)(notice);
  noticeLog(readableLog(out), 'info', () => time)({ ...notice, level: 'error' });
  expect(JSON.parse(lines[0]!)).toMatchObject({
    level: 40,
    time,
    pid: process.pid,
    requests: 2,
    tokens: 32,
    msg: 'KV was lost.',
  });
  expect(lines[0]!.endsWith('\n')).toBe(true);
  expect(lines[1]).toBe('03:04:05 error KV was lost. requests=2 tokens=32\n');
});

it.each([
  ['silent', 0],
  ['error', 1],
  ['warn', 2],
  ['debug', 2],
] as const)('with --log-level %s, %i of a warning and an error are said', (level, count) => {
  const lines: string[] = [];
  const log = noticeLog({ write: (line) => void lines.push(line) }, level);
  log(notice);
  log({ ...notice, level: 'error' });
  expect(lines).toHaveLength(count);
});
