/**
 * A KV connector in TypeScript: blocks stay in the memory of this process, so an engine finds what an earlier engine has
 * computed. A real connector would put a server in place of the Map. Name the module, or a compiled copy:
 *
 *   kvasir serve --kv-transfer-config.kv_connector MapConnector --kv-transfer-config.kv_role kv_both \
 *     --kv-transfer-config.kv_connector_module_path kvasir/examples/map-connector
 *
 * A program that embeds the engine may register the class instead: `registerConnector('MapConnector', async () => MapConnector)`.
 */
import {
  BlockCodec,
  type BlockKey,
  type ConnectorMetadata,
  type ConnectorRequest,
  headerBytes,
  type KvConnector,
  type KvIdentity,
  type KvRole,
  type KvTransferConfig,
  type LoadMode,
  type LookupAnswers,
  type MatchAnswer,
  type MissReason,
  type SchedulerConnectorContext,
  type StoreAnswer,
  type Tier,
  TierScheduler,
  TierWorker,
  type TransferReport,
  type WorkerConnectorContext,
} from 'kvasir/connector';

interface StoredBlock {
  readonly header: Uint8Array;
  readonly payload: Uint8Array;
}

/** One Map per store, model, layout and rank: so no block of another identity is found. */
const stores = new Map<string, Map<BlockKey, StoredBlock>>();

export class MapConnector implements KvConnector {
  readonly #store: string;
  readonly #mode: LoadMode;
  readonly #role: KvRole;

  /** Checks the settings. It runs before the model is loaded, in the engine's process and in each worker process. */
  constructor({ kvConnectorExtraConfig: { store = 'default', async_load = true }, kvRole }: KvTransferConfig) {
    if (typeof store !== 'string') throw new Error('kv_connector_extra_config.store must be a name');
    if (typeof async_load !== 'boolean') throw new Error('kv_connector_extra_config.async_load must be true or false');
    this.#store = store;
    this.#mode = async_load ? 'async' : 'sync';
    this.#role = kvRole;
  }

  async openScheduler(context: SchedulerConnectorContext): Promise<MapScheduler> {
    const tiers = context.identities.map((identity) => this.#tier(identity));
    return new MapScheduler(tiers, context, { role: this.#role, mode: this.#mode, lookupTimeoutMs: 1000 });
  }

  async openWorker(context: WorkerConnectorContext): Promise<MapWorker> {
    const options = { loadsAtOnce: 4, savesAtOnce: 2, saveBufferBytes: 64 * 1024 ** 2, saveTimeoutMs: 30_000 };
    return new MapWorker(this.#tier(context.identity), context, options);
  }

  #tier(identity: KvIdentity): MapTier {
    const name = JSON.stringify([this.#store, identity]);
    const blocks = stores.get(name) ?? new Map<BlockKey, StoredBlock>();
    stores.set(name, blocks);
    return new MapTier(blocks, identity);
  }
}

/** The scheduler side. It obeys a client that sends `"kv_transfer_params": {"skip_load": true}`. */
class MapScheduler extends TierScheduler {
  override getMatchedBlocks(request: ConnectorRequest): MatchAnswer {
    if (request.kvTransferParams?.skip_load === true) return { kind: 'found', blocks: [], mode: 'sync' };
    return super.getMatchedBlocks(request);
  }
}

/** The worker side. It counts the blocks of its loads; `engine.stats()` has the sum over ranks. */
class MapWorker extends TierWorker {
  #orderedBlocks = 0;

  override bindConnectorMetadata(metadata: ConnectorMetadata): void {
    super.bindConnectorMetadata(metadata);
    for (const { blocks } of metadata.loads) this.#orderedBlocks += blocks.length;
  }

  override getFinished(): TransferReport {
    const report = super.getFinished();
    const counters = { ...report.counters, 'map.orderedBlocks': this.#orderedBlocks };
    this.#orderedBlocks = 0;
    return { ...report, counters };
  }
}

/** A place for blocks. A missing or corrupt block is a result; a promise rejects if the place itself fails. */
class MapTier implements Tier {
  readonly name = 'map';
  readonly #blocks: Map<BlockKey, StoredBlock>;
  readonly #codec: BlockCodec;

  constructor(blocks: Map<BlockKey, StoredBlock>, identity: KvIdentity) {
    this.#blocks = blocks;
    this.#codec = new BlockCodec(identity);
  }

  async has(keys: readonly BlockKey[]): Promise<LookupAnswers> {
    return keys.map((key) => this.#blocks.has(key));
  }

  /** Fills `into` and returns undefined, or returns the reason of the failure. */
  async load(key: BlockKey, into: Uint8Array): Promise<MissReason | undefined> {
    const found = this.#blocks.get(key);
    if (found === undefined) return 'missing';
    into.set(found.payload);
    const reason = this.#codec.verify(key, found.header, into, headerBytes + found.payload.length);
    // A corrupt block is deleted, so that it can be saved again after its recomputation.
    if (reason !== undefined) this.#blocks.delete(key);
    return reason;
  }

  /** Copies the bytes: the engine reuses their block later. */
  async store(key: BlockKey, bytes: Uint8Array): Promise<StoreAnswer> {
    if (this.#blocks.has(key)) return 'alreadyStored';
    this.#blocks.set(key, { header: this.#codec.encode(key, bytes), payload: bytes.slice() });
    return 'stored';
  }

  async delete(key: BlockKey): Promise<void> {
    this.#blocks.delete(key);
  }

  /** This Map grows without limit; a tier that evicts returns the evicted keys. */
  takeEvicted(): readonly BlockKey[] {
    return [];
  }

  counters(): Readonly<Record<string, number>> {
    return {};
  }

  levels(): Readonly<Record<string, number>> {
    return { blocks: this.#blocks.size };
  }

  async close(): Promise<void> {}
}
