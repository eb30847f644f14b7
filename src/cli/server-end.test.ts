import { EventEmitter } from 'node:events';
import { describe, expect, it } from 'vitest';
import { ManualTime } from '../../test/support/manual-time.ts';
import { abortAnswerMs, type DrainOutcome } from '../server/server.ts';
import type { ExitCode } from './context.ts';
import { Interruption } from './interrupt.ts';
import { type EndingServer, ServerEnd } from './server-end.ts';

/** What `kvasir serve` has at its end. Its process never ends by itself, as if a thread hung. */
function hangingServer(timeoutSeconds: number) {
  const time = new ManualTime();
  const signals = new EventEmitter();
  const exits: { readonly code: ExitCode; readonly atMs: number }[] = [];
  let log = '';
  const end = new ServerEnd(timeoutSeconds, { write: (text) => (log += text) }, time);
  const exitNow = (code: ExitCode): void => void exits.push({ code, atMs: time.nowMs() });
  const interruption = new Interruption({ signals, exitNow }, { ...end.limits, timers: time });
  return { time, signals, exits, end, interruption, log: () => log };
}

const server = (drain: EndingServer['drain'], requestCount = 1): EndingServer => ({ requestCount, drain });
const never = (): Promise<DrainOutcome> => new Promise(() => undefined);
const timeouts = [0, 1, 30, 86_400];

describe('after SIGTERM, the process ends within the shutdown timeout plus one second', () => {
  it.each(timeouts)('if requests do not end, with a timeout of %i s', (seconds) => {
    const { time, signals, exits, end, log } = hangingServer(seconds);
    signals.emit('SIGTERM');
    void end.drain(server(never));
    time.advance(seconds * 1000);
    expect(exits).toEqual([]);
    time.advance(1000);
    expect(exits).toEqual([{ code: 143, atMs: expect.any(Number) }]);
    expect(log()).toContain(`the shutdown timeout of ${seconds} s is over: 1 request was aborted\n`);
  });

  it.each(timeouts)('if the model is still loading, with a timeout of %i s', (seconds) => {
    const { time, signals, exits } = hangingServer(seconds);
    signals.emit('SIGTERM');
    time.advance(seconds * 1000 + 1000);
    expect(exits).toEqual([{ code: 143, atMs: expect.any(Number) }]);
  });

  it('with code 0 if all requests ended, and only the engine does not close', async () => {
    const { time, signals, exits, end, log } = hangingServer(30);
    signals.emit('SIGTERM');
    expect(await end.drain(server(async () => ({ how: 'drained' })))).toBe(true);
    time.advance(31_000);
    expect(exits).toEqual([{ code: 0, atMs: expect.any(Number) }]);
    expect(log()).toContain('the engine was not closed yet');
  });

  it.each(timeouts)(
    'also if clients read their last events and spans are sent, with a timeout of %i s',
    async (seconds) => {
      const { time, signals, exits, end } = hangingServer(seconds);
      signals.emit('SIGTERM');
      await end.drain(
        server(async (timeoutMs) => {
          time.advance(timeoutMs + abortAnswerMs);
          return { how: 'cut', aborted: 1 };
        }),
      );
      time.advance(end.tracesMs);
      // Both stages have their whole time, and some is left to close the engine.
      expect(exits).toEqual([]);
      time.advance(seconds * 1000 + 1000 - time.nowMs());
      expect(exits).toEqual([{ code: 143, atMs: expect.any(Number) }]);
    },
  );

  it('and not at all if it was closed before', () => {
    const { time, signals, exits, interruption } = hangingServer(1);
    signals.emit('SIGTERM');
    interruption[Symbol.dispose]();
    expect(time.pending).toBe(0);
    time.advance(60_000);
    expect(exits).toEqual([]);
  });
});

it('a second signal ends the process at once, with its code', () => {
  const { signals, exits, end, log } = hangingServer(86_400);
  signals.emit('SIGTERM');
  void end.drain(server(never, 2));
  signals.emit('SIGINT');
  expect(exits).toEqual([{ code: 130, atMs: 0 }]);
  expect(log()).toContain('stopped by a second signal: 2 requests were aborted\n');
});

it('spans are sent for two seconds at most, and not beyond the end of the process', async () => {
  const { time, end } = hangingServer(30);
  const { graceMs = 0 } = end.limits;
  await end.drain(server(async () => ({ how: 'drained' })));
  expect(end.tracesMs).toBe(2000);
  for (; time.nowMs() <= graceMs - 250; time.advance(250)) {
    expect(end.tracesMs).toBeGreaterThanOrEqual(250);
    expect(time.nowMs() + end.tracesMs).toBeLessThanOrEqual(graceMs);
  }
});
