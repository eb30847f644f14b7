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
  readonly #salts = new Map<BlockKey, string | undefined>();

  get isEmpty(): boolean {
    return this.#salts.size === 0;
  }

  /** `cacheSalt`: of their request. */
  add(blocks: readonly Pick<KvBlock, 'key'>[], cacheSalt?: string): void {
    for (const { key } of blocks) this.#salts.set(key, cacheSalt);
  }

  /** The leases since the last call, and those of their blocks that the pool has and `isKept` does not know. */
  take(step: Pick<ConnectorStep, 'validBlock'>, isKept: (key: BlockKey) => boolean) {
    const toSave: SaveBlock[] = [];
    for (const [key, cacheSalt] of this.#salts) {
      const block = isKept(key) ? undefined : step.validBlock(key);
      if (block !== undefined) toSave.push({ key, block, cacheSalt });
    }
    const keys = [...this.#salts.keys()];
    this.#salts.clear();
    return { keys, toSave };
  }
}
