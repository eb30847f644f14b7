import type { JsonObject } from '../../base/json.ts';
import type { BlockKey } from '../block-key.ts';
import type { ConnectorStep, KvBlock, SaveBlock } from '../connector.ts';

/** The message to the workers: another server is about to load these blocks. */
export const leaseMessage = (keys: readonly BlockKey[]): JsonObject => ({ leased: keys });

/** The keys of `leaseMessage`. */
export const leasedKeys = ({ leased }: JsonObject): readonly BlockKey[] => (leased ?? []) as readonly BlockKey[];

/**
 * The scheduler's side of leases: the blocks of requests with `do_remote_decode`, from the moment when they are valid until the next
 * step tells the workers.
 */
export class NewLeases {
  #keys = new Set<BlockKey>();

  get isEmpty(): boolean {
    return this.#keys.size === 0;
  }

  add(blocks: readonly Pick<KvBlock, 'key'>[]): void {
    for (const { key } of blocks) this.#keys.add(key);
  }

  /** The leases since the last call, and those of their blocks that the pool has and `isKept` does not know. */
  take(step: Pick<ConnectorStep, 'validBlock'>, isKept: (key: BlockKey) => boolean) {
    const keys = [...this.#keys];
    this.#keys = new Set();
    const toSave: SaveBlock[] = [];
    for (const key of keys) {
      const block = isKept(key) ? undefined : step.validBlock(key);
      if (block !== undefined) toSave.push({ key, block });
    }
    return { keys, toSave };
  }
}
