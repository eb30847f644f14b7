import { createHash } from 'node:crypto';
import { assert } from '../../src/base/assert.ts';
import { systemClock } from '../../src/base/clock.ts';
import { type BlockKey, isBlockKey } from '../../src/connector/block-key.ts';
import {
  type ConnectorMetadata,
  type ConnectorOutput,
  emptyMetadata,
  type KvIdentity,
  type TransferId,
} from '../../src/connector/connector.ts';
import { systemTimers } from '../../src/connector/system-timers.ts';
import type { Tier } from '../../src/connector/tier/tier.ts';
import { TierWorker } from '../../src/connector/tier/tier-worker.ts';
import { stepWithConnector } from '../../src/connector/transfer/worker-step.ts';
import { blockId, blockIndex, groupIndex, requestId } from '../../src/core/ids.ts';
import { transferFailed } from '../errors.ts';

const timeoutMs = 60_000;

/** The worker side of a connector with plain memory. It transfers blocks in steps without tokens, as an idle engine does. */
export class TransferHarness {
  readonly #side: TierWorker;
  readonly #tier: Tier;
  readonly #notify: Notification;
  #lastId = 0;

  /** `pool`: blocks of `identity.blockBytes`. The limits are the defaults of connectors; the buffer has room for all blocks. */
  constructor(tier: Tier, identity: KvIdentity, pool: readonly Uint8Array[]) {
    const { blockBytes } = identity;
    const notify = new Notification();
    this.#tier = tier;
    this.#notify = notify;
    const context = { clock: systemClock, timers: systemTimers, wake: () => notify.notify(), identity };
    this.#side = new TierWorker(tier, context, {
      loadsAtOnce: 4,
      savesAtOnce: 2,
      saveBufferBytes: pool.length * blockBytes,
      saveTimeoutMs: timeoutMs,
    });
    const bytesOf = (block: number): Uint8Array => pool[block]!;
    this.#side.registerKvCaches({ blockCount: pool.length, blockBytes, bytesOf });
  }

  /** Resolves when all blocks are stored. The block of `keys[i]` is block `first + i` of the pool. */
  async save(keys: readonly BlockKey[], first: number): Promise<void> {
    const transfer = this.#newId();
    const blocks = keys.map((key, i) => ({ key, block: blockId(first + i) }));
    await this.#run({ saves: [{ transfer, blocks }] }, ({ finishedSending }) => finishedSending.includes(transfer));
  }

  /** Resolves when all blocks are loaded. */
  async load(keys: readonly BlockKey[], first: number): Promise<void> {
    const transfer = this.#newId();
    const place = this.#tier.name;
    const blocks = keys.map((key, i) => ({
      key,
      block: blockId(first + i),
      group: groupIndex(0),
      index: blockIndex(i),
      place,
    }));
    const load = { transfer, requestId: requestId('bench'), mode: 'async', timeoutMs, blocks } as const;
    await this.#run({ loads: [load] }, ({ finishedRecving }) => finishedRecving.includes(transfer));
  }

  async delete(keys: readonly BlockKey[]): Promise<void> {
    for (const key of keys) await this.#tier.delete(key);
  }

  async close(): Promise<void> {
    await this.#side.shutdown({ timeoutMs });
  }

  async #run(order: Partial<ConnectorMetadata>, isDone: (output: ConnectorOutput) => boolean): Promise<void> {
    for (let metadata = { ...emptyMetadata, ...order }; ; metadata = emptyMetadata) {
      const { output } = await stepWithConnector(this.#side, metadata, 0, undefined);
      const failure = [...output.saveFailures, ...output.loadFailures][0];
      if (failure !== undefined) throw transferFailed({ tier: this.#tier.name, reason: failure.reason });
      if (isDone(output)) return;
      await this.#notify.notified();
    }
  }

  #newId(): TransferId {
    return ++this.#lastId as TransferId;
  }
}

/** Remembers a `notify` that comes before `notified`. */
class Notification {
  #isNotified: boolean;
  #resolve: (() => void) | undefined;

  constructor() {
    this.#isNotified = false;
  }

  notify(): void {
    this.#isNotified = true;
    this.#resolve?.();
  }

  async notified(): Promise<void> {
    if (!this.#isNotified) await new Promise<void>((resolve) => (this.#resolve = resolve));
    this.#isNotified = false;
    this.#resolve = undefined;
  }
}

/** Keys that no other blocks have. */
export function blockKeys(count: number, first: number): BlockKey[] {
  return Array.from({ length: count }, (_, i) => {
    const key = `0-${createHash('sha256')
      .update(`${first + i}`)
      .digest('hex')}`;
    assert(isBlockKey(key), 'a block key');
    return key;
  });
}
