import type { Brand } from '../base/brand.ts';

/** The number of a block in the pool. Unique across KV groups, so a report of invalid blocks is never ambiguous. */
export type BlockId = Brand<number, 'BlockId'>;
/** A number of tokens, or a position in a request's tokens. */
export type TokenCount = Brand<number, 'TokenCount'>;
/** A number of blocks. */
export type BlockCount = Brand<number, 'BlockCount'>;
/** A token of the model's vocabulary. */
export type TokenId = Brand<number, 'TokenId'>;
/** The id of a request, unique for the life of the engine. */
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
 * Block 0, which no request owns. Block tables have it where a group has no block, for example before a window.
 * Tokens whose KV is not needed write to it: padding, and tokens that only another group computes again. Its content
 * has no meaning.
 */
export const NULL_BLOCK: BlockId = blockId(0);
