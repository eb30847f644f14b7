import { assert } from '../../base/assert.ts';
import type { BlockKey } from '../block-key.ts';
import type { ConnectorPlan, ConnectorStep, SaveBlock, TransferId } from '../connector.ts';

/** The blocks that the workers are saving, by transfer. */
export class OpenSaves {
  readonly #saves = new Map<TransferId, Set<BlockKey>>();
  readonly #keys = new Set<BlockKey>();

  isSaving(key: BlockKey): boolean {
    return this.#keys.has(key);
  }

  /** One save of these blocks, or none. Their keys are not being saved already. */
  begin(step: Pick<ConnectorStep, 'newTransferId'>, blocks: readonly SaveBlock[]): ConnectorPlan {
    if (blocks.length === 0) return nothingToSave;
    const transfer = step.newTransferId();
    const keys = new Set<BlockKey>();
    for (const { key } of blocks) {
      assert(!this.#keys.has(key), `block ${key} is being saved already`);
      this.#keys.add(key);
      keys.add(key);
    }
    this.#saves.set(transfer, keys);
    return { saves: [{ transfer, blocks }] };
  }

  /** This block was not stored. */
  fail(transfer: TransferId, key: BlockKey): void {
    if (this.#saves.get(transfer)?.delete(key) === true) this.#keys.delete(key);
  }

  /** The save is over. Returns the blocks that were stored. */
  finish(transfer: TransferId): readonly BlockKey[] {
    const keys = this.#saves.get(transfer);
    if (keys === undefined) return [];
    this.#saves.delete(transfer);
    for (const key of keys) this.#keys.delete(key);
    return [...keys];
  }

  checkInvariants(): void {
    const saving = [...this.#saves.values()].reduce((sum, keys) => sum + keys.size, 0);
    assert(saving === this.#keys.size, `${saving} keys in saves, ${this.#keys.size} marked as being saved`);
  }
}

export const nothingToSave: ConnectorPlan = Object.freeze({ saves: [] });
