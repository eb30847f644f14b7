import { assert, assertDefined } from '../../base/assert.ts';
import type { DeviceBlocks } from '../../core/block-memory.ts';
import type { BlockId } from '../../core/ids.ts';
import type { BlockLoadFailure, ConnectorMetadata, TransferId, TransferReport, WorkerConnector } from '../connector.ts';
import { StagingBuffers } from '../tier/staging-buffers.ts';

/** A load or save whose I/O may touch its blocks' copies. */
interface OpenTransfer {
  readonly blocks: readonly BlockId[];
  /** Of a load: blocks that are neither written to the pool nor failed. Empty: a save. */
  readonly missing: Set<BlockId>;
}

interface Copy {
  readonly bytes: Uint8Array;
  /** Open transfers of the block. */
  users: number;
}

/**
 * The worker side of a connector whose pool is in the memory of a device. The connector works on copies in host memory, as it works on
 * a pool there. Blocks of saves are copied from the device when their step begins, before anything is computed. Loaded blocks are
 * copied to the device before the engine learns of them. A copy exists while its transfer touches it. No copy happens
 * while a graph computes.
 */
export class StagedWorker implements WorkerConnector {
  readonly #inner: WorkerConnector;
  readonly #pool: DeviceBlocks;
  readonly #buffers: StagingBuffers;
  readonly #copies = new Map<BlockId, Copy>();
  readonly #open = new Map<TransferId, OpenTransfer>();
  #metadata: ConnectorMetadata | undefined;
  /** The forward pass has waited for the step's `sync` loads. A step without tokens does not. */
  #hasWaited: boolean = false;
  /** Read together with the report. */
  #failures: readonly BlockLoadFailure[] = [];

  constructor(inner: WorkerConnector, pool: DeviceBlocks) {
    this.#inner = inner;
    this.#pool = pool;
    this.#buffers = new StagingBuffers(pool.blockBytes, Number.POSITIVE_INFINITY);
    const { blockCount, blockBytes } = pool;
    inner.registerKvCaches({ blockCount, blockBytes, bytesOf: (block) => this.#copyOf(block).bytes });
  }

  registerKvCaches(): void {
    assert(false, 'the connector has the copies already');
  }

  async handlePreemptions(metadata: ConnectorMetadata): Promise<void> {
    for (const { transfer, blocks } of metadata.saves) {
      const ids = blocks.map(({ block }) => block);
      this.#begin(transfer, ids, new Set());
      for (const block of ids) this.#pool.read(block, this.#copyOf(block).bytes);
    }
    for (const { transfer, blocks } of metadata.loads) {
      const ids = blocks.map(({ block }) => block);
      this.#begin(transfer, ids, new Set(ids));
    }
    await this.#inner.handlePreemptions(metadata);
  }

  bindConnectorMetadata(metadata: ConnectorMetadata): void {
    this.#metadata = metadata;
    this.#inner.bindConnectorMetadata(metadata);
  }

  startLoadKv(): void {
    this.#inner.startLoadKv();
  }

  async waitForLayerLoad(layer: number): Promise<void> {
    await this.#inner.waitForLayerLoad(layer);
    this.#hasWaited = true;
  }

  saveKvLayer(layer: number): void {
    this.#inner.saveKvLayer(layer);
  }

  waitForSave(): Promise<void> {
    return this.#inner.waitForSave();
  }

  getFinished(): TransferReport {
    const report = this.#inner.getFinished();
    this.#failures = this.#takeFailures();
    for (const { transfer, block } of report.arrived ?? []) this.#write(transfer, block);
    for (const id of report.failedRecving) this.#open.get(id)?.missing.clear();
    for (const id of report.finishedRecving) this.#writeAll(id);
    for (const id of report.drained) this.#end(id);
    return report;
  }

  /** Also before the forward pass, when its `sync` loads are decided. */
  getBlockIdsWithLoadErrors(): readonly BlockLoadFailure[] {
    const failures = [...this.#failures, ...this.#takeFailures()];
    this.#failures = [];
    const loads = this.#hasWaited ? this.#metadata?.loads : undefined;
    for (const { transfer, mode } of loads ?? []) if (mode === 'sync') this.#writeAll(transfer);
    return failures;
  }

  clearConnectorMetadata(): void {
    this.#metadata = undefined;
    this.#hasWaited = false;
    this.#inner.clearConnectorMetadata();
  }

  /** The copies belong to this process, so I/O that goes on needs no memory of the device. */
  async shutdown(options: { readonly timeoutMs: number }): Promise<{ readonly drained: boolean }> {
    await this.#inner.shutdown(options);
    return { drained: true };
  }

  #takeFailures(): readonly BlockLoadFailure[] {
    const failures = this.#inner.getBlockIdsWithLoadErrors();
    for (const { transfer, block } of failures) this.#open.get(transfer)?.missing.delete(block);
    return failures;
  }

  #begin(transfer: TransferId, blocks: readonly BlockId[], missing: Set<BlockId>): void {
    this.#open.set(transfer, { blocks, missing });
    for (const block of blocks) {
      const known = this.#copies.get(block);
      if (known !== undefined) known.users++;
      else this.#copies.set(block, { bytes: assertDefined(this.#buffers.take(), 'copies have no limit'), users: 1 });
    }
  }

  #end(transfer: TransferId): void {
    const open = this.#open.get(transfer);
    if (open === undefined) return;
    this.#open.delete(transfer);
    for (const block of open.blocks) {
      const copy = this.#copyOf(block);
      if (--copy.users > 0) continue;
      this.#copies.delete(block);
      this.#buffers.give(copy.bytes);
    }
  }

  #writeAll(transfer: TransferId): void {
    const missing = this.#open.get(transfer)?.missing;
    if (missing !== undefined) for (const block of missing) this.#write(transfer, block);
  }

  #write(transfer: TransferId, block: BlockId): void {
    if (this.#open.get(transfer)?.missing.delete(block) === true) this.#pool.write(block, this.#copyOf(block).bytes);
  }

  #copyOf(block: BlockId): Copy {
    return assertDefined(this.#copies.get(block), `block ${block} is of an open transfer`);
  }
}
