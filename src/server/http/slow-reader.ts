import type { ServerResponse } from 'node:http';
import { setImmediate as nextTurn } from 'node:timers/promises';

/**
 * Resolves when the socket has taken what was written, or when the connection is closed: a writer then stops. A client that takes nothing
 * for `timeoutMs` loses its connection. Writers wait after each piece of about 64 KiB, so this is also the least speed of a reader.
 */
export function roomIn(response: ServerResponse, timeoutMs: number): Promise<void> {
  if (response.destroyed || !response.writableNeedDrain) return Promise.resolve();
  return new Promise((resolve) => {
    const stalled = setTimeout(() => {
      // With HTTP pipelining, the client may read an earlier response of its connection.
      if (response.socket === null) stalled.refresh();
      else response.destroy();
    }, timeoutMs);
    const done = (): void => {
      clearTimeout(stalled);
      response.off('drain', done);
      response.off('close', done);
      resolve();
    };
    response.on('drain', done);
    response.on('close', done);
  });
}

/** Writes the pieces at the reader's speed, with a turn of the event loop after each. Ends early if the connection is closed. */
export async function writePieces(
  response: ServerResponse,
  pieces: Iterable<string>,
  timeoutMs: number,
): Promise<void> {
  for (const piece of pieces) {
    if (response.destroyed) return;
    response.write(piece);
    await roomIn(response, timeoutMs);
    await nextTurn();
  }
}

/** For the last bytes, for which no writer waits. */
export function endWithin(response: ServerResponse, timeoutMs: number): void {
  response.setTimeout(timeoutMs);
  response.end();
}
