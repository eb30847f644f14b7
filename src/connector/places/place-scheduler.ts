import { assert } from '../../base/assert.ts';
import { byName } from '../../base/by-name.ts';
import type { BlockPlace } from '../../core/block-place.ts';
import type { BlockId, RequestId } from '../../core/ids.ts';
import type { BlockKey } from '../block-key.ts';
import {
  type ConnectorPlan,
  type ConnectorRequest,
  type ConnectorStep,
  type FoundBlock,
  type KvBlock,
  type KvEvent,
  type KvLoadPolicy,
  type KvRole,
  type LoadJob,
  loadsKv,
  type MatchAnswer,
  type PlaceContent,
  type PlaceKind,
  type SaveBlock,
  type SchedulerConnector,
  type SchedulerConnectorContext,
  savesKv,
  type TransferOutcomes,
  type WantedBlock,
} from '../connector.ts';
import { type ConnectorStats, sumOfStats, type TierLevels, type TierTotals } from '../connector-stats.ts';
import type { CircuitBreakerOptions } from '../tier/circuit-breaker.ts';
import type { Tier } from '../tier/tier.ts';
import type { TierAdministration } from '../tier-orders.ts';
import { HostDirectory, hostPlace } from './host-directory.ts';
import { leaseMessage, NewLeases } from './leased-keys.ts';
import { PlaceAdministration } from './place-administration.ts';
import { PlaceEvents } from './place-events.ts';
import type { Place, PlaceAnswers } from './place-lookups.ts';
import { isRemoteDecode, RemoteDecode, remoteDecodeAnswer } from './remote-decode.ts';
import { loadable, readRequestLimits } from './request-limits.ts';
import { type RequestLookup, RequestLookups } from './request-lookups.ts';
import { type RequestRetention, Retention } from './retention.ts';
import { blocksOf, type RequestChunks, StoreFilter } from './store-filter.ts';
import { StoredKeys } from './stored-keys.ts';

/** What the scheduler side of a connector with tiers does. Times are in milliseconds. */
export interface PlaceSettings {
  readonly role: KvRole;
  /** The name of this engine in the answers to `do_remote_decode`. */
  readonly engineId?: string | undefined;
  /** Host memory of all workers. With it, the places are written from there. Without it, the only place is. */
  readonly host?: { readonly maxBytes: number };
  /** Requests go on in other steps while their blocks are loaded. */
  readonly asyncLoad: boolean;
  /** Blocks without an answer by then are treated as missing. */
  readonly lookupTimeoutMs: number;
  /** Of all blocks that a request loads. Undefined: the engine's default. */
  readonly wholeLoadTimeoutMs?: number | undefined;
  /** How long a decode waits for blocks that a prefill server promised. Undefined: the default of `RemotePrefills`. */
  readonly remotePrefillTimeoutMs?: number | undefined;
  readonly loadPolicy?: KvLoadPolicy;
  /** A load of at most so many bytes from host memory happens inside of the step. Default 0. */
  readonly syncLoadBytes?: number;
  /** A block is stored when all blocks of its chunk are valid. Default 1, unless `chunkTokens` says it. */
  readonly blocksPerChunk?: number;
  /** Tokens of a chunk: a multiple of the block size. Takes precedence over `blocksPerChunk`. */
  readonly chunkTokens?: number | undefined;
  /** A block is stored when it is offered for the n-th time. Default 0. */
  readonly storeThreshold?: number;
  /** How many blocks that were not stored yet are remembered for `storeThreshold`. */
  readonly trackedOffersMax?: number;
  readonly offloadPromptOnly?: boolean;
  /** See `Retention`. Undefined: all blocks of windows and states are stored. */
  readonly retentionInterval?: number | undefined;
  /** Opens a place that an administrator attaches. Absent: places cannot be administered. Needs `host`. */
  readonly openPlace?: (name: string, spec: string) => Promise<Place>;
}

/** What is known of one request. */
interface RequestRecord {
  readonly lookup: RequestLookup;
  readonly promptTokens: number;
  readonly cacheSalt: string | undefined;
  readonly chunks: RequestChunks | undefined;
  /** Undefined: all blocks of windows and states are stored. */
  readonly retention: RequestRetention | undefined;
  /** Another server continues the request, and loads its blocks from a secondary tier. */
  readonly remoteDecode: RemoteDecode | undefined;
  isFinished: boolean;
}

/** How long a request waits for a block that is just being saved. */
const savingWaitMs = 1_000;

/**
 * The scheduler side of every connector that keeps blocks in tiers: in host memory of the workers and in the places below it, or in
 * one place alone. Saves go to the first of them. Blocks in host memory are found at once, in a directory made from the
 * workers' reports. Other blocks are looked up in the background: the first answer for a request is `askLater`. A block is
 * in a place if all ranks have their part of it.
 */
export class PlaceScheduler implements SchedulerConnector {
  readonly #context: SchedulerConnectorContext;
  readonly #settings: PlaceSettings;
  readonly tiers?: TierAdministration;
  readonly #places: Place[];
  readonly #lookups: RequestLookups;
  readonly #leases = new NewLeases();
  readonly #blockSizes: readonly number[];
  readonly #blockBytes: number;
  readonly #filter: StoreFilter;
  readonly #retention: Retention | undefined;
  /** Blocks of windows and states that are in the pool, and that later requests need. */
  readonly #retained: (readonly [BlockKey, string | undefined])[] = [];
  /** The next step stores the last blocks of requests that have ended. */
  #hasEnded: boolean = false;
  /** Undefined: there is no host memory, and `#stored` has what is known of the only place. */
  readonly #host: HostDirectory | undefined;
  readonly #stored: StoredKeys | undefined;
  readonly #placeEvents: PlaceEvents;
  readonly #requests = new Map<RequestId, RequestRecord>();
  readonly #warned = new Set<string>();
  /** Blocks that wait to be written to a secondary tier or are being written, as last reported. */
  #openStores = 0;
  /** An order was carried out, and no step has reported its changes yet. */
  #awaitsReports: boolean = false;
  /** Of the secondary tiers. */
  #events: KvEvent[] = [];

  constructor(
    places: readonly Place[],
    context: SchedulerConnectorContext,
    settings: PlaceSettings & { readonly breaker?: CircuitBreakerOptions },
  ) {
    this.#context = context;
    this.#settings = settings;
    this.#places = [...places];
    for (const { tiers } of places) assert(tiers.length === context.identities.length, 'one tier per rank');
    const lookedUp = (keys: readonly BlockKey[], answers: PlaceAnswers) => this.#stored?.lookedUp(keys, answers);
    this.#lookups = new RequestLookups(places, context, { ...settings, lookedUp });
    const { groups } = context.identities[0]!;
    this.#blockSizes = groups.map(({ blockSize }) => blockSize);
    this.#blockBytes = context.identities.reduce((sum, { blockBytes }) => sum + blockBytes, 0);
    this.#placeEvents = new PlaceEvents(context.identities);
    const { host, chunkTokens, blocksPerChunk = 1, storeThreshold = 0, trackedOffersMax = 0 } = settings;
    if (host === undefined) {
      assert(places.length === 1, 'several places are below host memory');
      this.#stored = new StoredKeys(places[0]!.name, context.clock);
    } else {
      // Ranks without KV in some blocks have room for others.
      const held = context.identities.map((rank) => Math.ceil(host.maxBytes / rank.worldSize / rank.blockBytes));
      this.#host = new HostDirectory(2 * held.reduce((sum, count) => sum + count, 0));
    }
    this.#retention = Retention.of(groups, settings.retentionInterval);
    const { openPlace, lookupTimeoutMs } = settings;
    if (this.#host !== undefined && openPlace !== undefined)
      this.tiers = new PlaceAdministration({
        ...{ context, places: this.#places, host: this.#host, lookupTimeoutMs, openPlace },
        placesChanged: () => this.#lookups.setPlaces(this.#places),
        reportsFollow: () => {
          this.#awaitsReports = true;
          context.wake();
        },
      });
    this.#filter = new StoreFilter({
      storeThreshold,
      trackedOffersMax,
      blocksPerChunk: this.#blockSizes.map((size) =>
        chunkTokens === undefined ? blocksPerChunk : Math.max(1, chunkTokens / size),
      ),
    });
  }

  get loadTimeoutMs(): number | undefined {
    return this.#settings.wholeLoadTimeoutMs;
  }

  get loadPolicy(): KvLoadPolicy | undefined {
    return this.#settings.loadPolicy;
  }

  requestArrived(request: ConnectorRequest): void {
    if (!loadsKv(this.#settings.role)) return;
    const { lookup } = this.#recordOf(request);
    this.#lookups.arrived(lookup, this.#unknown(this.#loadable(lookup, request)), request.computeMs);
  }

  getMatchedBlocks(request: ConnectorRequest): MatchAnswer {
    if (!loadsKv(this.#settings.role)) return nothingFound;
    const { lookup } = this.#recordOf(request);
    const wanted = this.#loadable(lookup, request);
    if (wanted.length === 0) return nothingFound;
    const deadlineMs = this.#lookups.deadlineOf(lookup, this.#unknown(wanted), request.computeMs);
    if (deadlineMs !== undefined) return { kind: 'askLater', deadlineMs };
    // A block that is being saved will be in host memory soon.
    if (this.#host !== undefined && wanted.some(({ isSaving }) => isSaving === true))
      return { kind: 'askLater', deadlineMs: this.#context.clock.nowMs() + savingWaitMs };
    const blocks: FoundBlock[] = [];
    for (const block of wanted) {
      const place = this.#host?.has(block.key) === true ? hostPlace : this.#lookups.placeOf(lookup, block.key);
      if (place !== undefined) blocks.push({ ...block, place });
    }
    this.#noteShared(request, blocks);
    return { kind: 'found', blocks, mode: this.#modeOf(blocks) };
  }

  updateStateAfterAlloc(request: ConnectorRequest, _: LoadJob | undefined, valid: () => readonly KvBlock[]): void {
    const record = this.#recordOf(request);
    // The next call of `getMatchedBlocks`, after a preemption or a failure, starts a new look-up.
    this.#lookups.end(record.lookup);
    this.#refreshStored(valid, request.cacheSalt);
    const { chunks, remoteDecode, retention } = record;
    if (chunks === undefined && remoteDecode === undefined && retention === undefined) return;
    const blocks = valid();
    for (const block of blocks) chunks?.addValid(block);
    if (retention !== undefined)
      for (const block of this.#offloaded(record, blocks))
        if (retention.isStored(block) && !this.#retention!.keepsAll(block.group) && !this.#home.has(block.key))
          this.#retained.push([block.key, record.cacheSalt]);
    this.#lease(record, blocks);
  }

  buildConnectorMeta(step: ConnectorStep): ConnectorPlan {
    this.#lookups.stepBegins();
    this.#filter.stepBegins();
    this.#hasEnded = false;
    const { blocks, leased } = savesKv(this.#settings.role) ? this.#blocksToSave(step) : nothingToOffload;
    for (const [id, { isFinished }] of this.#requests) if (isFinished) this.#requests.delete(id);
    const plan = { saves: blocks.length === 0 ? [] : [{ transfer: step.newTransferId(), blocks }] };
    return leased.length === 0 ? plan : { ...plan, extra: leaseMessage(leased) };
  }

  updateConnectorOutput({ loads, saves, evicted, placeChanges, stats }: TransferOutcomes): void {
    this.#lookups.stepEnds();
    this.#awaitsReports = false;
    for (const { key, place, result } of loads) {
      // A block from a secondary tier is now in host memory, too.
      if (result === 'loaded') this.#host?.loaded(key);
      // A worker's death says nothing about the stores.
      else if (result !== 'workerDied') {
        if (result === 'storeDown') this.#lookups.pause(place);
        // The block is saved again when it is computed again.
        this.#home.lost(key);
      }
    }
    for (const { openStores = 0 } of Object.values(stats?.levels?.tiers ?? {})) this.#openStores += openStores;
    this.#home.stored(saves.filter(({ result }) => result === 'stored').map(({ key }) => key));
    this.#events.push(...this.#placeEvents.eventsOf(placeChanges));
    this.#home.evicted(evicted);
    if (this.#host !== undefined) this.#lookups.leftHost(evicted);
  }

  requestFinished(request: ConnectorRequest, valid: () => readonly KvBlock[]) {
    const record = this.#recordOf(request);
    this.#lookups.end(record.lookup);
    // The next step still offers the newest blocks of the request.
    record.isFinished = true;
    if (record.retention !== undefined) this.#hasEnded = true;
    if (record.remoteDecode !== undefined) record.remoteDecode.add(this.#offloaded(record, valid()));
    const { engineId } = this.#settings;
    const { identities } = this.#context;
    return remoteDecodeAnswer(request, record.remoteDecode?.blocks ?? [], { engineId, identities });
  }

  takeEvents(): readonly KvEvent[] {
    const events = [...this.#home.takeEvents(), ...this.#events];
    this.#events = [];
    return events;
  }

  placeKind(place: string): PlaceKind | undefined {
    if (place === hostPlace) return { medium: 'CPU', locality: 'LOCAL' };
    return this.#places.find(({ name }) => name === place)?.kind;
  }

  listed(): readonly PlaceContent[] {
    return this.#host === undefined ? [] : [{ place: hostPlace, keys: this.#host.keys }];
  }

  counters(): Readonly<Record<string, number>> {
    return this.#lookups.counters();
  }

  stats(): ConnectorStats {
    const { host } = this.#settings;
    if (host === undefined) {
      const ofTier = (tier: Tier) => ({ own: tier.counters(), levels: { own: tier.levels?.() ?? {} } });
      return sumOfStats([...this.#places[0]!.tiers.map(ofTier), this.#lookups.stats(false)]);
    }
    const tiers: Record<string, TierTotals> = byName();
    const levels: Record<string, TierLevels> = byName();
    for (const { name, maxBytes } of [{ name: hostPlace, maxBytes: host.maxBytes }, ...this.#places]) {
      // So that a tier is in the reports before it is used.
      tiers[name] = {};
      levels[name] = maxBytes === undefined ? {} : { maxBytes };
    }
    return sumOfStats([{ tiers, levels: { tiers: levels } }, this.#lookups.stats(true)]);
  }

  /**
   * Steps go on while blocks are written to secondary tiers, so that the workers report the end. Blocks that a look-up has found
   * missing need a step to be saved, and so do the last blocks of a request.
   */
  hasPendingWork(): boolean {
    if (this.#hasEnded || this.#awaitsReports || this.#openStores > 0) return true;
    return !this.#leases.isEmpty || this.#stored?.isSavingAgain === true;
  }

  async close(): Promise<void> {
    this.#lookups.close();
    for (const { lookup } of this.#requests.values()) this.#lookups.end(lookup);
    // Not awaited: a tier that hangs must not stop the engine from closing, and this side stores nothing.
    for (const { tiers } of this.#places) for (const tier of tiers) void tier.close();
    await Promise.resolve();
  }

  /** What is known of the place that saves go to. */
  get #home(): HostDirectory | StoredKeys {
    return this.#host ?? this.#stored!;
  }

  /** Other servers can load what this one stores. */
  get #isProducer(): boolean {
    return savesKv(this.#settings.role) && this.#places.length > 0;
  }

  #blocksToSave(step: ConnectorStep): BlocksToSave {
    const blocks: SaveBlock[] = [];
    const seen = new Set<BlockKey>();
    const saved = new Set<BlockKey>();
    const isKept = (key: BlockKey): boolean => saved.has(key) || this.#home.has(key) || step.isSaving(key);
    const save = (key: BlockKey, block: BlockId, cacheSalt: string | undefined): void => {
      if (isKept(key) || seen.has(key)) return;
      seen.add(key);
      if (!this.#filter.isOftenNeeded(key)) return;
      saved.add(key);
      blocks.push(cacheSalt === undefined ? { key, block } : { key, block, cacheSalt });
    };
    for (const valid of step.newlyValid) {
      const record = this.#requests.get(valid.requestId);
      if (!this.#isOffloaded(record, valid)) continue;
      if (record?.remoteDecode !== undefined) {
        this.#lease(record, [valid]);
        if (this.#host !== undefined) continue;
      }
      const chunk = record?.chunks?.add(valid);
      const retention = record?.retention;
      const cacheSalt = record?.cacheSalt;
      if (record?.chunks === undefined) {
        if (retention?.isStored(valid) !== false) save(valid.key, valid.block, cacheSalt);
      } else if (chunk !== undefined && this.#isRetained(retention, valid, chunk))
        for (const { key, block } of blocksOf(chunk, (key) => step.validBlock(key))) save(key, block, cacheSalt);
    }
    for (const { isFinished, retention, cacheSalt } of this.#requests.values())
      if (isFinished) for (const { key } of retention?.takeLast() ?? []) this.#retained.push([key, cacheSalt]);
    for (const [key, cacheSalt] of this.#retained.splice(0)) {
      const block = step.validBlock(key);
      if (block !== undefined) save(key, block, cacheSalt);
    }
    for (const [key, cacheSalt] of this.#stored?.takeMissing() ?? []) {
      const block = step.validBlock(key);
      if (block !== undefined) save(key, block, cacheSalt);
    }
    // These blocks are stored at once, because another server needs them.
    const { keys, toSave } = this.#leases.take(step, isKept);
    return { blocks: [...blocks, ...toSave], leased: keys };
  }

  /** A chunk is stored if any of its blocks is. */
  #isRetained(retention: RequestRetention | undefined, valid: KvBlock, keys: readonly BlockKey[]): boolean {
    if (retention === undefined) return true;
    // Each block is asked about, because those that are not stored may be needed at the end.
    return this.#retention!.chunk(valid, keys).filter((block) => retention.isStored(block)).length > 0;
  }

  /** The end of what the prompt shares with earlier ones: the first block of full attention that neither pool nor tiers have. */
  #noteShared(request: ConnectorRequest, found: readonly FoundBlock[]): void {
    const { retention, promptTokens } = this.#recordOf(request);
    if (retention === undefined) return;
    const keys = new Set(found.map(({ key }) => key));
    const first = this.#retention!.firstMissing(request.wanted, (key) => keys.has(key));
    retention.shares(Math.min(first, promptTokens));
  }

  /** Another server is about to load these blocks of the request. */
  #lease(record: RequestRecord, blocks: readonly KvBlock[]): void {
    if (record.remoteDecode === undefined) return;
    const offloaded = this.#offloaded(record, blocks);
    record.remoteDecode.add(offloaded);
    // Without host memory, a save goes to the place at once.
    if (this.#host !== undefined) this.#leases.add(offloaded, record.cacheSalt);
  }

  #offloaded(record: RequestRecord, blocks: readonly KvBlock[]): readonly KvBlock[] {
    return blocks.filter((block) => this.#isOffloaded(record, block));
  }

  #isOffloaded(record: RequestRecord | undefined, { group, index }: BlockPlace): boolean {
    if (record === undefined) return true;
    const end = (index + 1) * this.#blockSizes[group]!;
    return (
      end <= record.lookup.limits.maxOffloadTokens && (!this.#settings.offloadPromptOnly || end <= record.promptTokens)
    );
  }

  #recordOf(request: ConnectorRequest): RequestRecord {
    const known = this.#requests.get(request.id);
    if (known !== undefined) return known;
    const limits = readRequestLimits(request.kvTransferParams, (message) => this.#warnOnce(message));
    const record: RequestRecord = {
      lookup: this.#lookups.open(request, limits, loadsKv(this.#settings.role)),
      // The first call for a request is before its first output token.
      promptTokens: request.tokenCount,
      cacheSalt: request.cacheSalt,
      chunks: this.#filter.newChunks(),
      retention: savesKv(this.#settings.role) ? this.#retention?.newRequest(request.tokenCount) : undefined,
      remoteDecode: isRemoteDecode(request) && this.#isProducer ? new RemoteDecode() : undefined,
      isFinished: false,
    };
    this.#requests.set(request.id, record);
    return record;
  }

  #warnOnce(message: string): void {
    if (this.#warned.has(message) || this.#warned.size >= 100) return;
    this.#warned.add(message);
    this.#context.event?.(message);
  }

  /** A block that failed is not loaded again for the request: all places were tried. */
  #loadable({ limits }: RequestLookup, { wanted }: ConnectorRequest): readonly WantedBlock[] {
    return loadable(wanted, limits, this.#blockSizes).filter(({ failedFrom }) => failedFrom === undefined);
  }

  /** The blocks that may be in a place below host memory only. */
  #unknown(wanted: readonly WantedBlock[]): readonly WantedBlock[] {
    const host = this.#host;
    return host === undefined ? wanted : wanted.filter(({ key, isSaving }) => !host.has(key) && isSaving !== true);
  }

  /** Looks up the blocks of a request that were stored long ago, because other processes may have removed them. */
  #refreshStored(valid: () => readonly KvBlock[], cacheSalt: string | undefined): void {
    const stored = this.#stored;
    if (stored === undefined || !savesKv(this.#settings.role)) return;
    const keysOf = (): readonly BlockKey[] => stored.old(valid);
    this.#lookups.refresh(keysOf, (keys, answers) => {
      for (const [i, key] of keys.entries()) if (answers[i] === false) stored.saveAgain(key, cacheSalt);
      if (stored.isSavingAgain) this.#context.wake();
    });
  }

  /** Small loads from host memory are done in the step that needs them, so that the request does not wait a step. */
  #modeOf(blocks: readonly FoundBlock[]): 'sync' | 'async' {
    const { asyncLoad, syncLoadBytes = 0 } = this.#settings;
    if (!asyncLoad) return 'sync';
    const isSmall = blocks.length > 0 && blocks.length * this.#blockBytes <= syncLoadBytes;
    return isSmall && blocks.every(({ place }) => place === hostPlace) ? 'sync' : 'async';
  }
}

interface BlocksToSave {
  readonly blocks: readonly SaveBlock[];
  /** Another server is about to load these. */
  readonly leased: readonly BlockKey[];
}

const nothingToOffload: BlocksToSave = { blocks: [], leased: [] };
const nothingFound: MatchAnswer = Object.freeze({ kind: 'found', blocks: [], mode: 'async' });
