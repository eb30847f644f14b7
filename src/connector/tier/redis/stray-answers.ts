/** Parts of ioredis's client, and of iovalkey's, that its types do not have. */
interface ClientParts {
  commandQueue: { shift(): unknown };
  flushQueue: (...args: unknown[]) => void;
  on(event: 'connect', listener: () => void): unknown;
  emit(event: 'error', error: Error): unknown;
  disconnect(): void;
}

/**
 * Closes a connection that gets an answer without a command. The client itself may throw outside of any call, which ends the process. So
 * each such answer gets a command here.
 */
export function closeAtStrayAnswers(client: object): void {
  const parts = client as ClientParts;
  let isFlushing = false;
  const { flushQueue } = parts;
  parts.flushQueue = (...args) => {
    isFlushing = true;
    try {
      flushQueue.apply(client, args);
    } finally {
      isFlushing = false;
    }
  };
  const close = (): void => {
    parts.emit('error', new Error('an answer came without a command'));
    parts.disconnect();
  };
  const stray = { command: { name: 'none', args: [], resolve: close, reject: close } };
  // The client has a queue for each connection, before any answer can come.
  parts.on('connect', () => {
    const queue = parts.commandQueue;
    const shift = queue.shift.bind(queue);
    queue.shift = () => shift() ?? (isFlushing ? undefined : stray);
  });
}
