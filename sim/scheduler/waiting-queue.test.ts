import { expect, test } from 'vitest';
import { Prng } from '../../src/base/prng.ts';
import { TokenBuffer } from '../../src/core/tokens.ts';
import { KvRequest } from '../../src/kv/kv-request.ts';
import { byPriority, byTurn, RequestState } from '../../src/scheduler/request-state.ts';
import { WaitingQueue } from '../../src/scheduler/waiting-queue.ts';
import { makeRequest } from '../workload.ts';

const waiting = (arrival: number, priority: number): RequestState => {
  const tokens = new TokenBuffer([1]);
  return new RequestState(makeRequest(`r${arrival}`, [1], { priority }), tokens, new KvRequest(0, tokens, []), arrival);
};

test.each([
  ['fcfs', byTurn],
  ['priority', byPriority],
] as const)(
  '%s: the queue and a sorted array have the same first request after random pushes and removals',
  (_, order) => {
    const prng = new Prng(3);
    const queue = new WaitingQueue(order);
    let reference: RequestState[] = [];
    for (let i = 0; i < 3000; i++) {
      if (reference.length === 0 || prng.chance(0.5)) {
        const state = waiting(i, prng.between(-2, 2));
        queue.push(state);
        reference.push(state);
      } else {
        const gone = prng.chance(0.5) ? queue.peek()! : prng.pick(reference);
        queue.remove(gone);
        reference = reference.filter((state) => state !== gone);
      }
      reference.sort(order);
      expect(queue.peek()).toBe(reference[0]);
      expect(queue.size).toBe(reference.length);
      queue.checkInvariants();
    }
  },
);
