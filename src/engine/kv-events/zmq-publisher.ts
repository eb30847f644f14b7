import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import type { PublisherSettings } from './config.ts';
import type { KvEventSource } from './contract.ts';
import { kvEventsAddressUnusable } from './errors.ts';
import type { ZmqLibrary, ZmqPublisherSocket, ZmqRouterSocket } from './libraries.ts';

/** Messages that are sent before other work of this thread gets its turn. */
const messagesAtOnce = 32;
/** How long an engine that closes waits for an address to be free. */
const unbindMs = 1_000;
const endOfReplay = Buffer.alloc(8, 0xff);
const nothing = new Uint8Array(0);

/**
 * Sends batches on a PUB socket as [topic, sequence number, payload], and again on a ROUTER socket for subscribers that missed some:
 *
 *   request   [client, "", first sequence number]
 *   answer    [client, "", topic, sequence number, payload] for each batch, then [client, "", "", -1, ""]
 *
 * Sequence numbers are 8 bytes, big-endian. No call waits for a subscriber: ZeroMQ drops the messages for one that is `hwm` messages
 * behind. If batches arrive faster than ZeroMQ takes them, the oldest of `maxQueueSize` waiting ones is not sent. Both
 * are gaps in the sequence numbers, and a replay mends them for as long as the batch is among the last `bufferSteps`.
 */
export class ZmqPublisher {
  readonly #settings: PublisherSettings;
  readonly #publisher: ZmqPublisherSocket;
  readonly #router: ZmqRouterSocket | undefined;
  readonly #warn: (message: string) => void;
  readonly #topic: Buffer;
  /** The batches that wait to be sent or may be replayed, by sequence number. */
  readonly #payloads = new Map<number, Uint8Array>();
  #oldest = 0;
  #nextToSend = 0;
  #next = 0;
  #dropped = 0;
  #replays = 0;
  #isSending: boolean = false;
  #isClosed: boolean = false;
  #hasWarned: boolean = false;

  private constructor(
    settings: PublisherSettings,
    sockets: { readonly publisher: ZmqPublisherSocket; readonly router: ZmqRouterSocket | undefined },
    warn: (message: string) => void,
  ) {
    this.#settings = settings;
    this.#publisher = sockets.publisher;
    this.#router = sockets.router;
    this.#warn = warn;
    this.#topic = Buffer.from(settings.topic);
    if (this.#router !== undefined) void this.#serveReplays(this.#router);
  }

  /** @throws KvasirError `kvEventsAddressUnusable`. */
  static async open(
    { Publisher, Router }: ZmqLibrary,
    settings: PublisherSettings,
    warn: (message: string) => void,
  ): Promise<ZmqPublisher> {
    const { endpoint, replayEndpoint, hwm, bufferSteps } = settings;
    // With a time limit of 0, a send that would wait fails instead.
    const publisher = new Publisher({ sendHighWaterMark: hwm, sendTimeout: 0, linger: 0 });
    // Room for a whole replay. A client that asks for more without reading loses some of them.
    const router =
      replayEndpoint === undefined
        ? undefined
        : new Router({ sendHighWaterMark: bufferSteps + 2, sendTimeout: 0, linger: 0 });
    try {
      await orUnusable(endpoint, 'endpoint', () =>
        binds(endpoint) ? publisher.bind(endpoint) : publisher.connect(endpoint),
      );
      if (replayEndpoint !== undefined)
        await orUnusable(replayEndpoint, 'replay_endpoint', () => router?.bind(replayEndpoint));
    } catch (error) {
      publisher.close();
      router?.close();
      throw error;
    }
    return new ZmqPublisher(settings, { publisher, router }, warn);
  }

  /** The sequence number of the next batch. */
  get nextSequence(): number {
    return this.#next;
  }

  get source(): KvEventSource {
    const { endpoint, replayEndpoint, topic } = this.#settings;
    return {
      dataParallelRank: 0,
      endpoint: withPort(endpoint, this.#publisher.lastEndpoint),
      replayEndpoint: replayEndpoint && withPort(replayEndpoint, this.#router?.lastEndpoint ?? null),
      topic,
    };
  }

  get counters(): { readonly batches: number; readonly dropped: number; readonly replays: number } {
    return { batches: this.#next, dropped: this.#dropped, replays: this.#replays };
  }

  /** Does not wait. */
  publish(payload: Uint8Array): void {
    this.#payloads.set(this.#next++, payload);
    if (this.#next - this.#nextToSend > this.#settings.maxQueueSize) {
      this.#nextToSend++;
      this.#dropped++;
    }
    this.#forget();
    if (!this.#isSending) void this.#send();
  }

  /** Batches that were not sent are dropped. Afterwards another publisher can use the addresses. Idempotent. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#payloads.clear();
    if (binds(this.#settings.endpoint)) await unbind(this.#publisher);
    if (this.#router !== undefined) await unbind(this.#router);
    this.#publisher.close();
    this.#router?.close();
  }

  #forget(): void {
    const { bufferSteps } = this.#settings;
    const replayed = this.#router === undefined ? this.#next : this.#next - bufferSteps;
    const kept = Math.min(this.#nextToSend, replayed);
    while (this.#oldest < kept) this.#payloads.delete(this.#oldest++);
  }

  async #send(): Promise<void> {
    this.#isSending = true;
    let sent = 0;
    while (this.#nextToSend < this.#next && !this.#isClosed) {
      const sequence = this.#nextToSend++;
      const payload = this.#payloads.get(sequence);
      try {
        if (payload !== undefined) await this.#publisher.send([this.#topic, bytesOf(sequence), payload]);
      } catch (error) {
        this.#dropped++;
        this.#warnOnce(`KV events: a batch could not be sent: ${(error as Error).message}. It can be replayed.`);
      }
      this.#forget();
      if (++sent % messagesAtOnce === 0) await nextTurn();
    }
    this.#isSending = false;
  }

  async #serveReplays(router: ZmqRouterSocket): Promise<void> {
    // Ends when the socket is closed.
    try {
      for await (const frames of router) await this.#replay(router, frames);
    } catch (error) {
      if (!this.#isClosed) this.#warnOnce(`KV events: replays have ended: ${(error as Error).message}.`);
    }
  }

  async #replay(router: ZmqRouterSocket, frames: readonly Uint8Array[]): Promise<void> {
    const [client, , start] = frames;
    if (client === undefined || start?.length !== 8 || frames.length !== 3) {
      this.#warnOnce(
        'KV events: a replay request was ignored. It has an empty frame and 8 bytes with a sequence number.',
      );
      return;
    }
    this.#replays++;
    const end = this.#next;
    const asked = Number(Buffer.from(start).readBigUInt64BE());
    let sent = 0;
    for (
      let sequence = Math.max(asked, this.#oldest, end - this.#settings.bufferSteps);
      sequence < end && !this.#isClosed;
      sequence++
    ) {
      const payload = this.#payloads.get(sequence);
      if (payload === undefined) continue;
      await this.#answer(router, [client, nothing, this.#topic, bytesOf(sequence), payload]);
      if (++sent % messagesAtOnce === 0) await nextTurn();
    }
    if (!this.#isClosed) await this.#answer(router, [client, nothing, nothing, endOfReplay, nothing]);
  }

  /** A client that has gone or does not read gets nothing. */
  async #answer(router: ZmqRouterSocket, frames: Uint8Array[]): Promise<void> {
    try {
      await router.send(frames);
    } catch {
      // The client asks again if it still needs the batch.
    }
  }

  #warnOnce(message: string): void {
    if (this.#hasWarned || this.#isClosed) return;
    this.#hasWarned = true;
    this.#warn(message);
  }
}

/** Waits until another socket can bind to the address. */
async function unbind(socket: ZmqPublisherSocket): Promise<void> {
  if (socket.lastEndpoint === null) return;
  try {
    const isFree = new Promise<void>((resolve) => void socket.events.on('close', resolve));
    await socket.unbind(socket.lastEndpoint);
    await Promise.race([isFree, sleep(unbindMs, undefined, { ref: false })]);
  } catch {
    // The socket is closed anyway.
  }
}

/** vLLM's rule. */
const binds = (endpoint: string): boolean => /\*|::|^ipc:|^inproc:/.test(endpoint);

/** `tcp://*:0` with the port that the system chose. */
function withPort(endpoint: string, bound: string | null): string {
  const port = /:(\d+)$/.exec(bound ?? '')?.[1];
  return port === undefined || !/^tcp:.*:(0|\*)$/.test(endpoint) ? endpoint : endpoint.replace(/(0|\*)$/, port);
}

function bytesOf(sequence: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(BigInt(sequence));
  return bytes;
}

async function orUnusable(address: string, key: string, open: () => Promise<void> | void | undefined): Promise<void> {
  try {
    await open();
  } catch (error) {
    throw kvEventsAddressUnusable({ address, key, reason: (error as Error).message }, error);
  }
}
