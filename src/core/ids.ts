import type { Brand } from '../base/brand.ts';

/** Index of a page in the device pool. Unique across KV groups, so that a failure report is never ambiguous. */
export type BlockId = Brand<number, 'BlockId'>;
/** A number of tokens, or a position in a request's tokens. */
export type TokenCount = Brand<number, 'TokenCount'>;
/** A number of blocks. */
export type BlockCount = Brand<number, 'BlockCount'>;
/** A token of the model's vocabulary. */
export type TokenId = Brand<number, 'TokenId'>;
/** A request, unique for the life of the engine. */
export type RequestId = Brand<string, 'RequestId'>;
/** A step of the engine, counted from 1. */
export type StepId = Brand<number, 'StepId'>;

export const blockId = (value: number): BlockId => value as BlockId;
export const tokenCount = (value: number): TokenCount => value as TokenCount;
export const blockCount = (value: number): BlockCount => value as BlockCount;
export const tokenId = (value: number): TokenId => value as TokenId;
export const requestId = (value: string): RequestId => value as RequestId;
export const stepId = (value: number): StepId => value as StepId;

/**
 * Page 0 belongs to nobody. It stands in a block table where a group holds no block (behind a window), it takes the
 * writes of rows whose KV nobody wants (padding, repairs for another group's sake), and its content means nothing.
 */
export const NULL_BLOCK: BlockId = blockId(0);
