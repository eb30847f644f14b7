import type { Brand } from '../base/brand.ts';

/** The number of a block in the pool. Unique across KV groups, so a report of invalid blocks is never ambiguous. */
export type BlockId = Brand<number, 'BlockId'>;
/** The position of a block in a request's block table: the block of tokens [index * blockSize, (index + 1) * blockSize). */
export type BlockIndex = Brand<number, 'BlockIndex'>;
/** The number of a KV group: its index in `KvCacheSpec.groups`. */
export type GroupIndex = Brand<number, 'GroupIndex'>;
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
/** Marks a number as the index of a block in a block table, from 0. */
export const blockIndex = (value: number): BlockIndex => value as BlockIndex;
/** Marks a number as the index of a KV group, from 0. */
export const groupIndex = (value: number): GroupIndex => value as GroupIndex;
export const tokenCount = (value: number): TokenCount => value as TokenCount;
export const blockCount = (value: number): BlockCount => value as BlockCount;
export const tokenId = (value: number): TokenId => value as TokenId;
export const requestId = (value: string): RequestId => value as RequestId;
export const stepId = (value: number): StepId => value as StepId;

/** The index of the block with the token at `position`. */
export const blockIndexOf = (position: number, blockSize: number): BlockIndex =>
  Math.floor(position / blockSize) as BlockIndex;

/**
 * Block 0, which no request owns. Block tables have it where a group has no block, for example before a window.
 * Tokens whose KV is not needed write to it: padding, and tokens that only another group computes again. Its content
 * has no meaning.
 */
export const NULL_BLOCK: BlockId = blockId(0);
