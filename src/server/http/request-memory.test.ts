import { describe, expect, it } from 'vitest';
import type { SamplingOptions } from '../../core/sampling.ts';
import { checkSampling } from '../../core/sampling-parse.ts';
import type { ParsedGeneration } from '../generation/request.ts';
import { needsOf, unreadMaxBytes } from '../generation/request-needs.ts';
import { type HeldMemory, RequestMemory, type RequestNeeds } from './request-memory.ts';

const MIB = 1024 * 1024;
/** Shares: bodies in progress 128, bodies 512, small answers 256 of up to 16, large answers 128. */
const limits = { requestMaxBytes: 100 * MIB, totalMaxBytes: 1024 * MIB, slots: 64 };
const forever = new AbortController().signal;
const need = (bytes: number, completions = 1): RequestNeeds => ({ bytes, completions });
const free = (held: HeldMemory): void => held[Symbol.dispose]();

/** Whether the promise has resolved, after all microtasks. */
async function isSettled(promise: Promise<unknown>): Promise<boolean> {
  let settled = false;
  const settle = (): void => {
    settled = true;
  };
  promise.then(settle, settle);
  await new Promise((resolve) => setImmediate(resolve));
  return settled;
}

describe('the memory of requests', () => {
  it('refuses a request that may need too much, with both figures', async () => {
    const memory = new RequestMemory(limits);
    await expect(memory.hold(need(101 * MIB), forever)).rejects.toMatchObject({
      code: 'KVASIR_REQUEST_OVER_MEMORY',
      fields: { bytes: 101 * MIB, limitBytes: 100 * MIB },
    });
    expect(memory.heldBytes).toBe(0);
  });

  it('lets large requests wait for each other, in order, and small ones pass them', async () => {
    const memory = new RequestMemory(limits);
    const first = await memory.hold(need(90 * MIB), forever);
    const second = memory.hold(need(80 * MIB), forever);
    const third = memory.hold(need(30 * MIB), forever);
    expect([await isSettled(second), await isSettled(third), memory.waiting]).toEqual([false, false, 2]);
    const small = await memory.hold(need(10 * MIB), forever);
    free(first);
    free(first);
    free(await second);
    free(await third);
    free(small);
    expect([memory.heldBytes, memory.waiting]).toEqual([0, 0]);
  });

  it('admits the tenant that holds least, so that a request does not wait for the backlog of another tenant', async () => {
    const memory = new RequestMemory(limits);
    const first = await memory.hold(need(90 * MIB), forever, 'a');
    const backlog = [80, 80, 80].map((size) => memory.hold(need(size * MIB), forever, 'a'));
    const other = memory.hold(need(80 * MIB), forever, 'b');
    expect([await isSettled(backlog[0]!), await isSettled(other)]).toEqual([false, false]);
    free(first);
    // Both tenants hold nothing, and `a` had the last turn.
    expect([await isSettled(backlog[0]!), await isSettled(other)]).toEqual([false, true]);
    free(await other);
    expect([await isSettled(backlog[0]!), await isSettled(backlog[1]!)]).toEqual([true, false]);
    const wide = memory.hold(need(1, 100), forever, 'a');
    const widest = memory.hold(need(1, 100), forever, 'a');
    const ofOther = memory.hold(need(1, 20), forever, 'b');
    expect([await isSettled(wide), await isSettled(widest), await isSettled(ofOther)]).toEqual([true, false, true]);
    for (const held of backlog) free(await held);
    for (const held of [wide, ofOther]) free(await held);
    free(await widest);
    expect([memory.heldBytes, memory.waiting]).toEqual([0, 0]);
  });

  it('lets small requests wait when their share is in use', async () => {
    const memory = new RequestMemory(limits);
    const held = await Promise.all(Array.from({ length: 16 }, () => memory.hold(need(16 * MIB), forever)));
    const next = memory.hold(need(1), forever);
    expect(await isSettled(next)).toBe(false);
    free(held[0]!);
    free(await next);
  });

  it('forgets a request whose client does not wait, and admits those behind it', async () => {
    const memory = new RequestMemory(limits);
    const first = await memory.hold(need(90 * MIB), forever);
    const leaver = new AbortController();
    const second = memory.hold(need(80 * MIB), leaver.signal);
    const third = memory.hold(need(30 * MIB), forever);
    leaver.abort();
    await expect(second).rejects.toMatchObject({ code: 'KVASIR_CLIENT_GONE' });
    await expect(memory.hold(need(1), leaver.signal)).rejects.toMatchObject({ code: 'KVASIR_CLIENT_GONE' });
    // It was behind a request that did not fit; it fits itself.
    const held = await third;
    free(first);
    free(held);
    expect([memory.heldBytes, memory.waiting]).toEqual([0, 0]);
  });

  it('lets requests for many completions wait for each other, and others pass them', async () => {
    const memory = new RequestMemory(limits);
    const first = await memory.hold(need(1, 100), forever);
    const leaver = new AbortController();
    const second = memory.hold(need(1, 64), leaver.signal);
    const third = memory.hold(need(1, 28), forever);
    expect([await isSettled(second), await isSettled(third)]).toEqual([false, false]);
    for (let i = 0; i < 100; i++) await memory.hold(need(1, 8), forever);
    leaver.abort();
    await expect(second).rejects.toMatchObject({ code: 'KVASIR_CLIENT_GONE' });
    const fourth = memory.hold(need(1, 128), forever);
    free(await third);
    expect(await isSettled(fourth)).toBe(false);
    free(first);
    free(await fourth);
    // It waits for memory, and its completions are free again when it leaves.
    const large = await memory.hold(need(100 * MIB), forever);
    const both = new AbortController();
    const fifth = memory.hold(need(100 * MIB, 128), both.signal);
    expect(await isSettled(fifth)).toBe(false);
    both.abort();
    await expect(fifth).rejects.toMatchObject({ code: 'KVASIR_CLIENT_GONE' });
    free(await memory.hold(need(1, 128), forever));
    free(large);
  });

  it('always admits one request, also if it needs more than the share', async () => {
    const memory = new RequestMemory({ ...limits, requestMaxBytes: 500 * MIB });
    const held = await memory.hold(need(400 * MIB), forever);
    expect(await isSettled(memory.hold(need(20 * MIB), forever))).toBe(false);
    free(held);
  });

  it('refuses bodies beyond their share, and tells the client to come again', () => {
    const memory = new RequestMemory(limits);
    const held = Array.from({ length: 16 }, () => memory.holdBody(8 * MIB));
    expect(() => memory.holdBody(1)).toThrow(
      expect.objectContaining({ code: 'KVASIR_REQUEST_MEMORY_FULL', httpStatus: 503, retryable: true }),
    );
    free(held[0]!);
    memory.holdBody(8 * MIB);
  });
});

describe('the memory that an answer may need', () => {
  const promptOf = (maxTokens = 2000) => ({ tokens: new Int32Array(1000), maxTokens });
  const bytesOf = (params: SamplingOptions, more: Partial<ParsedGeneration> = {}): number =>
    needsOf({
      parsed: { params: checkSampling(params, 9), stream: false, ...more } as ParsedGeneration,
      prompts: [promptOf(params.maxTokens)],
    }).bytes;

  it('grows with completions, tokens and logprobs of output and prompt', () => {
    const plain = bytesOf({ maxTokens: 100 });
    expect(plain).toBe(4096 + 1100 * 16);
    expect(bytesOf({ maxTokens: 100, n: 5 })).toBe(5 * plain);
    expect(bytesOf({})).toBe(plain + 1900 * 16);
    expect(bytesOf({ maxTokens: 100, logprobs: 20 })).toBe(plain + 100 * 252);
    expect(bytesOf({ maxTokens: 100, n: 2 }, { promptLogprobs: 0, echoedLogprobs: 20 })).toBe(
      2 * (plain + 1000 * (12 + 252)),
    );
  });

  it('has the completions that may run at the same time', () => {
    const parsed = { params: { n: 3 }, stream: false } as ParsedGeneration;
    const prompts = [promptOf(), promptOf(), promptOf()];
    expect(needsOf({ parsed, prompts }).completions).toBe(9);
    expect(needsOf({ parsed, prompts, promptsAtOnce: 2 }).completions).toBe(6);
  });

  it('of a stream is bounded by what is kept for a slow reader', () => {
    const huge = { maxTokens: 1_000_000, logprobs: 20, n: 8 };
    expect(bytesOf(huge, { stream: true })).toBe(8 * (4096 + 1000 * 16) + unreadMaxBytes);
    expect(bytesOf({ maxTokens: 10 }, { stream: true })).toBe(bytesOf({ maxTokens: 10 }));
  });
});
