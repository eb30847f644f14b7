/**
 * Follows the KV events of a server and so knows which blocks it has cached, as a router does:
 *
 *   kvasir serve m.gguf --kv-events-config '{"enable_kv_cache_events":true,"replay_endpoint":"tcp://*:5558"}'
 *
 *   const subscriber = new KvEventSubscriber('tcp://127.0.0.1:5557', 'tcp://127.0.0.1:5558');
 *   await subscriber.catchUp();
 *   setInterval(() => console.log(subscriber.blocks.size), 1000);
 *
 * It also reads the events of vLLM in both formats, and asks for a replay when it missed some. Needs `npm install zeromq
 * @msgpack/msgpack`.
 */
import { decode } from '@msgpack/msgpack';
import { Dealer, Subscriber } from 'zeromq';

/** A server that ends forgets what it was asked. After this time without an answer, it is asked again. */
const answerMs = 2_000;

export interface CachedBlock {
  readonly medium: string;
  /** Of the medium `STORAGE`: `LOCAL` or `REMOTE`. */
  readonly locality?: string;
  readonly group: number;
  readonly hash: string;
  /** Undefined: the event had no tokens. */
  readonly content?: {
    readonly parent: string | undefined;
    readonly tokens: readonly number[];
    readonly salt?: string;
  };
}

export class KvEventSubscriber {
  /** By `medium/group/hash`. */
  readonly blocks = new Map<string, CachedBlock>();
  /** The sequence number that comes next. */
  next = 0;
  /** Batches that came on the subscription, and by replay. */
  live = 0;
  replayed = 0;
  /** How often it began again because the server had been restarted. */
  restarts = 0;
  readonly #endpoint: string;
  readonly #replayEndpoint: string;
  readonly #socket: Subscriber;
  /** The payload before `next`: a server that was restarted has another one at this number. */
  #last: Buffer | undefined;
  /** False after a lost connection: the next batch may be of a server that was restarted, and have the expected number all the same. */
  #isSameServer = true;
  /** One after the other: batches and replays. */
  #work: Promise<unknown> = Promise.resolve();

  constructor(endpoint: string, replayEndpoint: string, topic = '') {
    this.#endpoint = endpoint;
    this.#replayEndpoint = replayEndpoint;
    this.#socket = new Subscriber({ receiveHighWaterMark: 0, linger: 0 });
    this.#socket.subscribe(topic);
    this.#socket.events.on('disconnect', () => {
      this.#isSameServer = false;
    });
    this.connect();
    void this.#listen();
  }

  connect(): void {
    this.#socket.connect(this.#endpoint);
  }

  disconnect(): void {
    this.#socket.disconnect(this.#endpoint);
  }

  /** Asks for all batches that it does not have: after a connection, or when no later batch shows that some are missing. */
  catchUp(): Promise<void> {
    return this.#afterOthers(() => this.#replay());
  }

  close(): void {
    this.#socket.close();
  }

  async #listen(): Promise<void> {
    for await (const [, sequence, payload] of this.#socket) {
      if (sequence?.length !== 8 || payload === undefined) continue;
      await this.#afterOthers(() => this.#receive(Number(sequence.readBigUInt64BE()), payload));
    }
  }

  async #receive(sequence: number, payload: Buffer): Promise<void> {
    this.live++;
    if (sequence === this.next && this.#isSameServer) return this.#apply(sequence, payload);
    const isKnown = sequence === this.next - 1 && this.#last?.equals(payload) === true;
    // A gap, or the number is old: the server may have been restarted.
    if (!isKnown) await this.#replay();
  }

  async #replay(): Promise<void> {
    while (!this.#socket.closed && !(await this.#hasAllFromReplay()));
  }

  /** False if there is more to ask for: the server was restarted, or it did not answer. */
  async #hasAllFromReplay(): Promise<boolean> {
    // The last batch is asked for again, because it shows whether the server is the same.
    let isSame = this.next === 0;
    this.#isSameServer = true;
    try {
      for await (const [sequence, payload] of this.#batchesFrom(Math.max(this.next - 1, 0))) {
        if (sequence === this.next - 1 && this.#last?.equals(payload) === true) isSame = true;
        if (!isSame) break;
        if (sequence < this.next) continue;
        this.replayed++;
        this.#apply(sequence, payload);
      }
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EAGAIN') return false;
      throw error;
    }
    if (isSame) return true;
    this.restarts++;
    this.#forgetAll();
    return false;
  }

  async *#batchesFrom(first: number): AsyncGenerator<[number, Buffer]> {
    const socket = new Dealer({ linger: 0, receiveHighWaterMark: 0, receiveTimeout: answerMs });
    try {
      socket.connect(this.#replayEndpoint);
      const start = Buffer.alloc(8);
      start.writeBigUInt64BE(BigInt(first));
      await socket.send(['', start]);
      for await (const frames of socket) {
        // vLLM before 0.33 does not send the topic.
        const [sequence, payload] = frames.slice(-2);
        if (payload === undefined || payload.length === 0) return;
        yield [Number(sequence!.readBigUInt64BE()), payload];
      }
    } finally {
      socket.close();
    }
  }

  #apply(sequence: number, payload: Buffer): void {
    // Numbers are missing in a replay if the server does not keep them any more: nothing is known of the blocks before.
    if (sequence > this.next) this.blocks.clear();
    const [, events] = decode(payload, { useBigInt64: true }) as [number, unknown[]];
    for (const event of events) this.#applyEvent(fieldsOf(event));
    this.#last = payload;
    this.next = sequence + 1;
  }

  #applyEvent(event: Fields): void {
    if (event.type === 'AllBlocksCleared') this.blocks.clear();
    const medium = String(event.medium);
    const group = Number(event.group_idx ?? 0);
    const locality = typeof event.locality === 'string' ? { locality: event.locality } : {};
    const hashes = (event.block_hashes ?? []) as unknown[];
    for (const [i, one] of hashes.entries()) {
      const hash = String(one);
      const key = `${medium}/${group}/${hash}`;
      if (event.type === 'BlockStored')
        this.blocks.set(key, { medium, ...locality, group, hash, ...contentAt(event, i) });
      if (event.type === 'BlockRemoved') this.blocks.delete(key);
    }
  }

  #forgetAll(): void {
    this.blocks.clear();
    this.next = 0;
    this.#last = undefined;
  }

  #afterOthers(work: () => Promise<void>): Promise<void> {
    const result = this.#work.then(work);
    this.#work = result.catch(() => undefined);
    return result;
  }
}

type Fields = Readonly<Record<string, unknown>>;

function contentAt(event: Fields, i: number): Pick<CachedBlock, 'content'> {
  const size = Number(event.block_size);
  const tokens = (event.token_ids as readonly number[]).slice(i * size, (i + 1) * size);
  if (tokens.length === 0) return {};
  const parent = i === 0 ? (event.parent_block_hash ?? undefined) : (event.block_hashes as readonly unknown[])[i - 1];
  const [salt] = (event.extra_keys as readonly (readonly string[] | null)[] | undefined)?.[i] ?? [];
  const content = { parent: parent === undefined ? undefined : String(parent), tokens };
  return { content: salt === undefined ? content : { ...content, salt } };
}

const storedFields =
  'type block_hashes parent_block_hash token_ids block_size lora_id medium lora_name extra_keys group_idx kv_cache_spec_kind kv_cache_spec_sliding_window locality';
const removedFields = 'type block_hashes medium group_idx locality';

/** An event is a map, or in the format before June 2026 an array. */
function fieldsOf(event: unknown): Fields {
  if (!Array.isArray(event)) return event as Fields;
  const names = (event[0] === 'BlockStored' ? storedFields : removedFields).split(' ');
  return Object.fromEntries(event.map((value, i) => [names[i] ?? `field ${i}`, value ?? undefined]));
}
