import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, describe, expect, it, vi } from 'vitest';
import { DatagramReceiver } from '../../test/support/datagram-receiver.ts';
import { needs } from '../../test/support/needs.ts';
import { sendDatagram } from '../base/unix-datagram.ts';
import type { EngineEvent } from '../engine/contract.ts';
import { ServiceNotifier } from './service-notifier.ts';

const patience = { timeout: 120_000, interval: 5 };
const isLinux = process.platform === 'linux';
const folder = mkdtempSync(join(tmpdir(), 'kvasir-notify-'));
const cleanups: (() => unknown)[] = [];
afterEach(() => {
  for (const cleanup of cleanups.splice(0).reverse()) cleanup();
});
afterAll(() => rmSync(folder, { recursive: true }));

let sockets = 0;

function receiverAt(path = join(folder, `socket-${sockets++}`)) {
  const receiver = new DatagramReceiver(path);
  cleanups.push(() => receiver.close());
  return { path, read: () => receiver.read() };
}

function notifier(environment: Record<string, string>, isAlive = () => true) {
  const events: EngineEvent[] = [];
  const opened = ServiceNotifier.open({ environment, isAlive, onEvent: (event) => events.push(event) });
  cleanups.push(() => opened?.[Symbol.dispose]());
  return { manager: opened!, events };
}

describe('the service manager', needs(isLinux, 'not Linux'), () => {
  it.each(['a path', 'an abstract name'])('is told the states in order, through a socket with %s', (kind) => {
    const { path, read } = receiverAt(kind === 'a path' ? undefined : `@kvasir-test-${process.pid}`);
    const { manager, events } = notifier({ NOTIFY_SOCKET: path });
    manager.loading('The server loads m: 3 %.\nREADY=1');
    manager.reloading();
    manager.ready('The server serves m.');
    manager.reloading();
    manager.reloaded();
    manager.stopping(30);
    manager.stopping(30);
    manager.loading('late');
    manager.ready('late');
    const [loading, ready, reloading, ...others] = read();
    expect(loading).toBe('STATUS=The server loads m: 3 %. READY=1\nEXTEND_TIMEOUT_USEC=120000000');
    expect(ready).toBe('READY=1\nSTATUS=The server serves m.');
    expect(reloading).toMatch(/^RELOADING=1\nMONOTONIC_USEC=\d+$/);
    expect(others).toEqual(['READY=1', 'STOPPING=1\nSTATUS=The server shuts down.\nEXTEND_TIMEOUT_USEC=35000000']);
    expect(events).toEqual([]);
  });

  it('that is slow gets each state later, and only the last progress', async () => {
    const { path, read } = receiverAt();
    const { manager, events } = notifier({ NOTIFY_SOCKET: path });
    while (sendDatagram(path, 'x') === 'sent');
    for (let percent = 0; percent <= 100; percent++) manager.loading(`${percent} %`);
    manager.ready('serves');
    const got: string[] = [];
    await vi.waitFor(() => {
      got.push(...read().filter((text) => text !== 'x'));
      expect(got.at(-1)).toBe('READY=1\nSTATUS=serves');
    }, patience);
    expect(got.map((text) => text.split('\n')[0])).toEqual(['STATUS=100 %', 'READY=1']);
    expect(events).toEqual([]);
  });

  it('that is gone is reported once', () => {
    const { manager, events } = notifier({ NOTIFY_SOCKET: join(folder, 'none') });
    manager.loading('1 %');
    manager.ready('serves');
    expect(events).toMatchObject([{ level: 'warn', message: expect.stringContaining('(ENOENT)') }]);
  });

  it('with an address of another kind is reported', () => {
    const { manager, events } = notifier({ NOTIFY_SOCKET: 'vsock:2:1234' });
    expect(manager).toBeUndefined();
    expect(events).toMatchObject([{ level: 'warn', message: expect.stringContaining('vsock:2:1234') }]);
    expect(notifier({}).manager).toBeUndefined();
    expect(notifier({ NOTIFY_SOCKET: `/${'x'.repeat(200)}` }).manager.ready('x')).toBeUndefined();
  });

  it('gets signs of life while the engine is not broken', async () => {
    const { path, read } = receiverAt();
    let isAlive = false;
    let asked = 0;
    notifier({ NOTIFY_SOCKET: path, WATCHDOG_USEC: '2000', WATCHDOG_PID: String(process.pid) }, () => {
      asked++;
      return isAlive;
    });
    await vi.waitFor(() => expect(asked).toBeGreaterThan(2), patience);
    expect(read()).toEqual([]);
    isAlive = true;
    await vi.waitFor(() => expect(read()).toContain('WATCHDOG=1'), patience);
  });

  it('gets none that it wants from another process', () => {
    const asked = vi.fn(() => true);
    const other = notifier({ NOTIFY_SOCKET: '@none', WATCHDOG_USEC: '1', WATCHDOG_PID: '1' }, asked);
    expect(other.manager).toBeDefined();
    expect(asked).not.toHaveBeenCalled();
  });
});
