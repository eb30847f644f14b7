import { describe, expect, it } from 'vitest';
import { harness } from '../harness.ts';
import { makeRequest } from '../workload.ts';

const manySlots = { maxNumBatchedTokens: 512, maxNumSeqs: 16, maxModelLen: 200 };

/** Adds `count` requests of a tenant, whose outputs have `maxTokens`. */
function crowd({ scheduler }: ReturnType<typeof harness>, tenant: string | undefined, count: number, maxTokens = 100) {
  for (let i = 0; i < count; i++) {
    const more = { params: { maxTokens, ignoreEos: true }, ...(tenant === undefined ? {} : { tenant }) };
    scheduler.add(makeRequest(`${tenant}${i}`, [1 + i, 2, 3], more));
  }
}

const admittedIn = (h: ReturnType<typeof harness>): string[] => h.step().sequences.map(({ requestId }) => requestId);

describe('requests of tenants', () => {
  it('take turns, although one tenant sent all of its requests before', () => {
    const h = harness(400, { ...manySlots, maxNumSeqs: 1 }, 16);
    crowd(h, 'a', 4, 1);
    expect(admittedIn(h)).toEqual(['a0']);
    crowd(h, 'b', 2, 1);
    expect([1, 2, 3, 4, 5].flatMap(() => admittedIn(h))).toEqual(['a1', 'b0', 'a2', 'b1', 'a3']);
  });

  it('of one tenant, or without one, are served in order of arrival', () => {
    for (const tenant of [undefined, 'a']) {
      const h = harness(400, { ...manySlots, maxNumSeqs: 1 }, 16);
      crowd(h, tenant, 4, 1);
      expect([0, 1, 2, 3].flatMap(() => admittedIn(h))).toEqual([0, 1, 2, 3].map((i) => `${tenant}${i}`));
    }
  });

  it('leave a quarter of the slots free, which other tenants get at once', () => {
    const h = harness(400, manySlots, 16);
    crowd(h, 'a', 40);
    expect(admittedIn(h)).toHaveLength(12);
    crowd(h, 'b', 40);
    expect(admittedIn(h).filter((id) => id.startsWith('b'))).toHaveLength(3);
    crowd(h, 'c', 1);
    expect(admittedIn(h).filter((id) => id.startsWith('c'))).toHaveLength(1);
    h.scheduler.checkInvariants();
  });

  it('leave one slot free in a small engine, and none without tenants', () => {
    const small = harness(400, { ...manySlots, maxNumSeqs: 2 }, 16);
    crowd(small, 'a', 5);
    expect(admittedIn(small)).toHaveLength(1);
    crowd(small, 'b', 5);
    expect(admittedIn(small)).toEqual(['a0', 'b0']);
    const alone = harness(400, manySlots, 16);
    crowd(alone, undefined, 40);
    expect(admittedIn(alone)).toHaveLength(16);
  });

  it('leave a quarter of the pool free, which the first request of another tenant gets at once', () => {
    // Blocks of 4 tokens. Each request fills 20 of 100.
    const h = harness(101, { ...manySlots, maxNumSeqs: 64 });
    const long = (tenant: string, i: number) =>
      makeRequest(
        `${tenant}${i}`,
        Array.from({ length: 78 }, (_, at) => 1 + ((7 * i + at) % 20)),
        {
          tenant,
          cacheSalt: `${tenant}${i}`,
          params: { maxTokens: 100, ignoreEos: true },
        },
      );
    for (let i = 0; i < 8; i++) h.scheduler.add(long('a', i));
    expect(admittedIn(h)).toHaveLength(3);
    h.scheduler.add(long('b', 0));
    expect(admittedIn(h)).toContain('b0');
    h.scheduler.checkInvariants();
  });

  it('that were aborted before their turn cost the tenant no later turns', () => {
    const h = harness(400, { ...manySlots, maxNumSeqs: 1 }, 16);
    crowd(h, 'a', 1, 1);
    crowd(h, 'b', 3, 1);
    for (let i = 0; i < 3; i++) h.scheduler.abort(makeRequest(`b${i}`, [1]).id);
    crowd(h, 'c', 2, 1);
    h.scheduler.add(makeRequest('b9', [9, 9], { tenant: 'b', params: { maxTokens: 1 } }));
    expect([0, 1, 2, 3].flatMap(() => admittedIn(h))).toEqual(['a0', 'c0', 'b9', 'c1']);
  });
});
