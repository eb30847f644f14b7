import { type BlockKey, blockKey, digestHexOfKey, groupOfKey } from '../../connector/block-key.ts';
import type { KvEvent, SchedulerConnector } from '../../connector/connector.ts';
import { blockIndex } from '../../core/ids.ts';
import type { KvCacheSpec } from '../../core/kv-spec.ts';
import type { CacheEventLog, StoredBlock } from '../../kv/cache-events.ts';
import type { PublisherSettings } from './config.ts';
import type { KvEventSink, KvSnapshot, MediumContent } from './contract.ts';
import { encodeBatch } from './encode.ts';
import type { MsgpackLibrary } from './libraries.ts';
import { type BlockContent, EventBuilder, type Medium, poolMedium, type WireEvent } from './wire-events.ts';
import type { ZmqPublisher } from './zmq-publisher.ts';

export interface FeedParts {
  readonly spec: KvCacheSpec;
  /** Changes of the pool's prefix cache. */
  readonly log: CacheEventLog;
  /** The keys of the pool's prefix cache. */
  cachedKeys(): ReadonlySet<BlockKey>;
  readonly connector: Pick<SchedulerConnector, 'placeKind' | 'listed'> | undefined;
  readonly publisher: Pick<ZmqPublisher, 'publish' | 'nextSequence' | 'source' | 'counters' | 'close'>;
  readonly msgpack: MsgpackLibrary;
  readonly settings: Pick<PublisherSettings, 'eventFormat'>;
  /** Since 1970. */
  seconds(): number;
}

/**
 * Turns the changes of the pool and of the places below it into batches. The changes of a step are one batch, which is made in
 * the next turn of the event loop: beside the next step, or when the engine is idle.
 */
export class KvEventFeed implements KvEventSink {
  readonly #parts: FeedParts;
  /** What is in the blocks that were cached last, for the events of the places below. Oldest first. */
  readonly #contents = new Map<BlockKey, BlockContent>();
  readonly #contentsMax: number;
  #fromConnector: KvEvent[] = [];
  #isScheduled: boolean = false;
  #isClosed: boolean = false;

  constructor(parts: FeedParts) {
    this.#parts = parts;
    // Blocks are stored below the pool soon after they are cached in it.
    this.#contentsMax = parts.connector === undefined ? 0 : 2 * parts.spec.blockCount + 1024;
    parts.log.onEvents = () => this.#flushSoon();
  }

  connectorEvents(events: readonly KvEvent[]): void {
    if (events.length === 0) return;
    this.#fromConnector.push(...events);
    this.#flushSoon();
  }

  sources() {
    return [this.#parts.publisher.source];
  }

  snapshot(): KvSnapshot {
    this.#flush();
    const { cachedKeys, connector, publisher } = this.#parts;
    const media = contentsOf(poolMedium.medium, cachedKeys());
    for (const { place, keys } of connector?.listed?.() ?? [])
      media.push(...contentsOf(this.#mediumOf(place).medium, keys));
    return { nextSequence: publisher.nextSequence, media };
  }

  counters() {
    return this.#parts.publisher.counters;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#parts.publisher.close();
  }

  #flushSoon(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      this.#flush();
    });
  }

  #flush(): void {
    if (this.#isClosed) return;
    const { log, spec, publisher, msgpack, settings, seconds } = this.#parts;
    const builder = new EventBuilder(spec.groups);
    for (const event of log.take()) {
      if (event.kind === 'cleared') builder.cleared();
      else if (event.kind === 'removed') builder.removed(event.group, poolMedium, hashOf(event.digest));
      else builder.stored(event.group, poolMedium, { hash: hashOf(event.digest), content: this.#contentOf(event) });
    }
    const fromConnector = this.#fromConnector;
    this.#fromConnector = [];
    for (const event of fromConnector) this.#addConnectorEvent(builder, event);
    const events: readonly WireEvent[] = builder.events;
    if (events.length > 0) publisher.publish(encodeBatch(msgpack, events, seconds(), settings.eventFormat));
  }

  #addConnectorEvent(builder: EventBuilder, { kind, keys, place }: KvEvent): void {
    const medium = this.#mediumOf(place);
    for (const key of keys) {
      const [group, hash] = [groupOfKey(key), hashOfKey(key)];
      if (kind === 'stored') builder.stored(group, medium, { hash, content: this.#contents.get(key) });
      else builder.removed(group, medium, hash);
    }
  }

  /** Remembers the content too. */
  #contentOf({ group, digest, parent, tokens, cacheSalt, adapterName }: StoredBlock): BlockContent {
    const content = { parent: parent === undefined ? null : hashOf(parent), tokens, cacheSalt, adapterName };
    if (this.#contentsMax === 0) return content;
    const key = blockKey(group, digest, blockIndex(0));
    this.#contents.delete(key);
    this.#contents.set(key, content);
    if (this.#contents.size > this.#contentsMax) this.#contents.delete(this.#contents.keys().next().value as BlockKey);
    return content;
  }

  #mediumOf(place: string): Medium {
    return this.#parts.connector?.placeKind?.(place) ?? { medium: 'STORAGE' };
  }
}

/** The low 64 bits of a digest, as vLLM publishes them. */
function hashOf(digest: Uint32Array): bigint {
  return (BigInt(swapped(digest[6]!)) << 32n) | BigInt(swapped(digest[7]!));
}

const hashOfKey = (key: BlockKey): bigint => BigInt(`0x${digestHexOfKey(key).slice(-16)}`);

/** Words of a digest are little-endian. */
const swapped = (word: number): number =>
  ((word << 24) | ((word << 8) & 0xff0000) | ((word >>> 8) & 0xff00) | (word >>> 24)) >>> 0;

function contentsOf(medium: string, keys: ReadonlySet<BlockKey>): MediumContent[] {
  const byGroup = new Map<number, bigint[]>();
  for (const key of keys) {
    const group = groupOfKey(key);
    const hashes = byGroup.get(group) ?? [];
    hashes.push(hashOfKey(key));
    byGroup.set(group, hashes);
  }
  return [...byGroup].sort(([a], [b]) => a - b).map(([group, hashes]) => ({ medium, group, hashes }));
}
