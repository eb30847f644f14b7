import { expect, test } from 'vitest';
import type { ConnectorRequest } from '../src/connector/connector.ts';
import { type BlockId, blockIndex, groupIndex, requestId, tokenCount } from '../src/core/ids.ts';
import { TokenBuffer } from '../src/core/tokens.ts';
import type { ScheduledStep } from '../src/scheduler/contract.ts';
import { onePoolSpec } from './harness.ts';
import { HitChecker } from './hit-checker.ts';

const blockSize = 4;
type Sequence = ScheduledStep['sequences'][number];

/** Computes tokens [start, end) of a request with 8 tokens in two blocks. */
const sequence = (id: string, blocks: readonly number[], start: number, end: number): Sequence => ({
  requestId: requestId(id),
  tokens: new TokenBuffer(new Int32Array(8)),
  spans: [{ start: tokenCount(start), end: tokenCount(end) }],
  blockTables: [{ ids: Int32Array.from(blocks), length: blocks.length }],
  sample: {} as never,
});
const planned = (checker: HitChecker, ...sequences: Sequence[]): void => {
  checker.planning();
  checker.planned({ sequences } as unknown as ScheduledStep);
};
const checkerWithInvalidBlock = (): HitChecker => {
  const checker = new HitChecker(onePoolSpec(20, blockSize), 100, true, () => 1);
  planned(checker, sequence('a', [1, 2], 4, 8));
  checker.blocksInvalidated([2 as BlockId]);
  return checker;
};

test('a request must ask for its invalid block before it computes it', () => {
  expect(() => planned(checkerWithInvalidBlock(), sequence('a', [1, 2], 4, 8))).toThrow('I3: a computes block 0/1');
});

test('a request need not ask for an invalid block that another request has computed, or computes in the same step', () => {
  const checker = checkerWithInvalidBlock();
  planned(checker, sequence('b', [1, 2], 4, 8));
  planned(checker, sequence('a', [1, 2], 4, 8));
  planned(checkerWithInvalidBlock(), sequence('a', [1, 2], 4, 8), sequence('b', [1, 2], 4, 8));
});

test('a request that has found the block in the prefix cache may compute its tokens for another group', () => {
  const found = sequence('a', [1, 3], 4, 8);
  const writeTables = [{ ids: Int32Array.from([1, 0]), length: 2 }];
  planned(checkerWithInvalidBlock(), { ...found, writeTables });
  expect(() => planned(checkerWithInvalidBlock(), found)).toThrow('I3: a computes block 0/1');
});

test('another request that computes the same tokens in a block of its own changes nothing', () => {
  const checker = checkerWithInvalidBlock();
  planned(checker, sequence('b', [1, 3], 4, 8));
  expect(() => planned(checker, sequence('a', [1, 2], 4, 8))).toThrow('I3: a computes block 0/1');
});

/** The request has blocks and asks for its second one; the connector answers "ask later", and the engine does not ask again. */
const checkerWithUnanswered = (): HitChecker => {
  const checker = new HitChecker(onePoolSpec(20, blockSize), 100, true, () => 1);
  planned(checker, sequence('a', [1, 2], 0, 4));
  checker.planning();
  const wanted = [{ group: groupIndex(0), index: blockIndex(1), key: 'key' }];
  const request = { id: requestId('a'), tokenCount: tokenCount(8), wanted } as unknown as ConnectorRequest;
  checker.asked(request, { kind: 'askLater', deadlineMs: 50 }, 0, () => true);
  checker.allocated(request, undefined, 0);
  return checker;
};

test('a request with blocks does not compute a block before the answer for it', () => {
  expect(() => planned(checkerWithUnanswered(), sequence('a', [1, 2], 4, 8))).toThrow('I3: a computes block 0/1');
});

test('a request without blocks waits for an answer; one that was admitted need not if another request fills the block', () => {
  const checker = new HitChecker(onePoolSpec(20, blockSize), 100, true, () => 1);
  const wanted = [{ group: groupIndex(0), index: blockIndex(1), key: 'key' }];
  const request = { id: requestId('a'), tokenCount: tokenCount(8), wanted } as unknown as ConnectorRequest;
  const admittedWithoutAnswer = (): void => {
    checker.planning();
    checker.asked(request, { kind: 'askLater', deadlineMs: 50 }, 0, () => true);
    checker.allocated(request, undefined, 0);
  };
  expect(admittedWithoutAnswer).toThrow('I3: the engine does not wait for the answer for a');
  checker.allocated(request, undefined, 0);
  // No plan has had the request yet.
  admittedWithoutAnswer();
  planned(checker, sequence('b', [1, 2], 4, 8), sequence('a', [1, 2], 4, 8));
});

test('a request need not wait for an answer if another request fills the block', () => {
  const checker = checkerWithUnanswered();
  planned(checker, sequence('b', [1, 2], 4, 8), sequence('a', [1, 2], 4, 8));
});

test('a request may compute the first tokens of an invalid state for another group, and must ask before the last', () => {
  const spec = {
    ...onePoolSpec(20, blockSize),
    groups: [{ kind: 'state', blockSize: tokenCount(blockSize), layers: [0] }],
  } as const;
  const checker = new HitChecker(spec, 100, true, () => 1);
  planned(checker, sequence('a', [1, 2], 0, 8));
  checker.blocksInvalidated([1 as BlockId]);
  planned(checker, sequence('a', [3, 2], 0, 3));
  expect(() => planned(checker, sequence('a', [3, 2], 3, 4))).toThrow('I3: a computes block 0/0');
});

test('a request that has its own block with valid tokens again, instead of an invalid block that it shared, need not ask', () => {
  const group = {
    kind: 'window',
    blockSize: tokenCount(blockSize),
    window: tokenCount(blockSize),
    layers: [0],
  } as const;
  const spec = { ...onePoolSpec(20, blockSize), groups: [group] };
  const checkerWithShared = (): HitChecker => {
    const checker = new HitChecker(spec, 100, true, () => 1);
    planned(checker, sequence('a', [1, 2], 4, 6));
    planned(checker, sequence('a', [1, 3], 0, 4));
    checker.blocksInvalidated([3 as BlockId]);
    return checker;
  };
  planned(checkerWithShared(), sequence('a', [1, 2], 4, 8));
  expect(() => planned(checkerWithShared(), sequence('a', [1, 4], 4, 8))).toThrow('I3: a computes block 0/1');
  const checker = checkerWithShared();
  checker.blocksInvalidated([2 as BlockId]);
  expect(() => planned(checker, sequence('a', [1, 2], 4, 8))).toThrow('I3: a computes block 0/1');
});
