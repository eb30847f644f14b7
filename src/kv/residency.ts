import { assert } from '../base/assert.ts';
import type { BlockId } from '../core/ids.ts';

/**
 * The valid tokens and the owner of each block. A block that requests use has one of these states, the same for all of
 * them:
 *
 *   valid       the KV of all its tokens is valid
 *   computing   a request owns it and fills it token by token; the valid tokens may be read already
 *   loading     a request owns it and a transfer fills it; no tokens are written to it or read before it is verified
 *
 * A block has at most one owner, and only its owner's tokens are written to it.
 */
export class Residency {
  /**
   * By block: how many of its first tokens are valid (I1). In a state group: the block has the state after this many.
   */
  readonly validTokens: Int32Array;
  /** The same after the step that is being planned or in flight: later tokens of this step may read these tokens. */
  readonly scheduledTokens: Int32Array;
  /** 1 while a transfer that a request waits for fills the block. */
  readonly #loading: Uint8Array;
  /** Slot of the block's owner, plus one; 0 = no owner. */
  readonly #owners: Int32Array;

  constructor(blockCount: number) {
    this.validTokens = new Int32Array(blockCount);
    this.scheduledTokens = new Int32Array(blockCount);
    this.#loading = new Uint8Array(blockCount);
    this.#owners = new Int32Array(blockCount);
  }

  isOwned(block: BlockId): boolean {
    return this.#owners[block] !== 0;
  }

  isOwnedBy(block: BlockId, slot: number): boolean {
    return this.#owners[block] === slot + 1;
  }

  isLoading(block: BlockId): boolean {
    return this.#loading[block] === 1;
  }

  /** Whether computed tokens of `slot` are written to the block. */
  isFilledBy(block: BlockId, slot: number): boolean {
    return this.#owners[block] === slot + 1 && this.#loading[block] === 0;
  }

  /** The slot of the block's owner. */
  ownerOf(block: BlockId): number | undefined {
    const owner = this.#owners[block]!;
    return owner === 0 ? undefined : owner - 1;
  }

  /**
   * A transfer fills the block for its owner. In a sync load, `scheduledTokens` is the block size: tokens of this step
   * may read the block, and do not count if the load fails. In an async load it is 0: tokens that read the block wait.
   */
  startLoading(block: BlockId, scheduledTokens: number): void {
    if (!this.isOwned(block)) fail(block, 'is to be loaded, but has no owner');
    if (this.validTokens[block] !== 0) fail(block, 'is to be loaded, but has valid tokens');
    this.#loading[block] = 1;
    this.scheduledTokens[block] = scheduledTokens;
  }

  /** The transfer has filled the block, and its content was verified (I1). */
  loadArrived(block: BlockId, blockSize: number): void {
    if (!this.isLoading(block)) fail(block, 'is not loading');
    this.#loading[block] = 0;
    this.validTokens[block] = blockSize;
    this.scheduledTokens[block] = blockSize;
  }

  /** The load failed, or no request waits for it any more. */
  stopLoading(block: BlockId): void {
    this.#loading[block] = 0;
    this.empty(block);
  }

  /** `slot` fills the block. Its present content does not count. */
  assignOwner(block: BlockId, slot: number): void {
    if (this.isLoading(block)) fail(block, 'is loading');
    this.empty(block);
    this.#owners[block] = slot + 1;
  }

  /** The block has no valid tokens. */
  empty(block: BlockId): void {
    this.validTokens[block] = 0;
    this.scheduledTokens[block] = 0;
  }

  /**
   * The scheduled tokens were computed; tokens of the block from `below` on do not count. This includes tokens that
   * were valid before: if another group needed them again, they have been overwritten.
   */
  commitBelow(block: BlockId, below: number): void {
    this.validTokens[block] = Math.min(this.scheduledTokens[block]!, below);
    this.scheduledTokens[block] = this.validTokens[block]!;
  }

  /** As `commitBelow` for a running state: after tokens that do not count, the earlier state is overwritten. */
  commitState(block: BlockId, below: number): void {
    if (below < this.scheduledTokens[block]!) this.empty(block);
    else this.validTokens[block] = this.scheduledTokens[block]!;
  }

  /** The first `tokens` tokens are valid: drafts were accepted whose KV the step has written. */
  extend(block: BlockId, tokens: number): void {
    if (this.scheduledTokens[block] !== this.validTokens[block]) fail(block, 'has scheduled tokens');
    this.validTokens[block] = tokens;
    this.scheduledTokens[block] = tokens;
  }

  /** The scheduled tokens were not computed, so the block is as before the step. */
  notComputed(block: BlockId): void {
    this.scheduledTokens[block] = this.validTokens[block]!;
  }

  /** The owner has filled the block or gives it up: no tokens are written to it any more. */
  clearOwner(block: BlockId, slot: number): void {
    if (!this.isOwnedBy(block, slot)) fail(block, `is not owned by slot ${slot}`);
    this.#owners[block] = 0;
  }

  /** The owner ended or was preempted; another request with the block continues. */
  transferOwnership(block: BlockId, slot: number, newOwner: number): void {
    if (!this.isLoading(block) && this.scheduledTokens[block] !== this.validTokens[block])
      fail(block, 'gets another owner while a step is in flight');
    this.clearOwner(block, slot);
    this.#owners[block] = newOwner + 1;
  }
}

/** For checks of each block: the message is built only if the check fails. */
function fail(block: BlockId, what: string): never {
  assert(false, `block ${block} ${what}`);
}
