import { afterEach, describe, expect, it, vi } from 'vitest';
import { serveHere } from '../../test/support/serve-here.ts';

const patience = { timeout: 120_000, interval: 5 };
let close: (() => unknown) | undefined;
afterEach(() => close?.());

async function start(hasTerminal: boolean) {
  const server = await serveHere([], {}, { hasTerminal });
  close = server.close;
  return server;
}

const health = async (origin: string): Promise<number> => (await fetch(`${origin}/health`)).status;

describe('SIGHUP without TLS', () => {
  it('is a log line if the server has no terminal, and the server continues', async () => {
    const { signals, stderr, origin, loaded, engine } = await start(false);
    signals.emit('SIGHUP');
    loaded.resolve(engine);
    await vi.waitFor(() => expect(stderr()).toContain(' serving '), patience);
    signals.emit('SIGHUP');
    expect(stderr().match(/warn +SIGHUP changes nothing: .* Restart the server\./g)).toHaveLength(2);
    expect(await health(origin)).toBe(200);
  });

  it('shuts the server down if its terminal was closed', async () => {
    const { signals, stderr, code, loaded, engine } = await start(true);
    loaded.resolve(engine);
    await vi.waitFor(() => expect(stderr()).toContain(' serving '), patience);
    signals.emit('SIGHUP');
    expect(await code).toBe(0);
    expect(stderr()).toContain('shutting down: no request is running');
    expect(signals.listenerCount('SIGHUP')).toBe(0);
  });

  it('ends the load with exit code 129 if its terminal was closed', async () => {
    const { signals, code } = await start(true);
    signals.emit('SIGHUP');
    expect(await code).toBe(129);
  });
});
