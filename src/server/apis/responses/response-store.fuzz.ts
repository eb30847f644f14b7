import fc from 'fast-check';
import { expect, it } from 'vitest';
import { fuzzRuns } from '../../../../test/support/long-form.ts';
import type { ConversationItem } from './conversation-items.ts';
import { type History, itemsOf, ResponseStore } from './response-store.ts';

/**
 * Random responses that continue each other, and random deletions. The reference keeps all conversations: a response that the store
 * still has must give the same items, and the store stays within its bytes. A copy of a store, as it goes to another process, is equal. Not covered: which responses are removed for room, except that
 * the newest is not.
 */
const message = (text: string): ConversationItem => ({ kind: 'message', role: 'user', text });

const action = fc.oneof(
  fc.record({ kind: fc.constant('put' as const), previous: fc.nat(15), length: fc.nat(2000) }),
  fc.record({ kind: fc.constant('delete' as const), which: fc.nat(15) }),
  fc.record({ kind: fc.constant('read' as const), which: fc.nat(15) }),
  fc.record({ kind: fc.constant('copy' as const) }),
);

it('a conversation stays whole as long as its last response is stored, within the bytes of the store', () => {
  let continued = 0;
  let removed = 0;
  fc.assert(
    fc.property(
      fc.array(action, { minLength: 20, maxLength: 60 }),
      fc.integer({ min: 10_000, max: 40_000 }),
      (actions, bytesMax) => {
        let store = new ResponseStore(bytesMax);
        const expected: (readonly ConversationItem[])[] = [];
        for (const next of actions) {
          if (next.kind === 'put') {
            const previous = `r${next.previous}`;
            const history: History | undefined = store.history(previous);
            if (history !== undefined) continued++;
            const item = message(`${expected.length}`.padEnd(next.length, 'x'));
            const id = `r${expected.length}`;
            expected.push([...(history === undefined ? [] : expected[next.previous]!), item]);
            store.put({ id, json: `"${id}"`, history, items: [item], outputItems: new Map([[`m${id}`, item]]) });
            if (expected.at(-1)!.length === 1) expect(store.json(id)).toBe(`"${id}"`);
          } else if (next.kind === 'copy') {
            const { bytes, size } = store;
            const state = structuredClone(store.state());
            store = new ResponseStore(bytesMax);
            store.restore(state);
            expect(store).toMatchObject({ bytes, size });
          } else if (next.kind === 'delete') {
            const had = store.json(`r${next.which}`) !== undefined;
            expect(store.delete(`r${next.which}`)).toBe(had);
            expect(store.history(`r${next.which}`)).toBeUndefined();
          } else {
            const history = store.history(`r${next.which}`);
            if (history !== undefined) expect(itemsOf(history)).toEqual(expected[next.which]);
            else if (next.which < expected.length) removed++;
            expect(store.item(`mr${next.which}`)).toEqual(
              history === undefined ? undefined : expected[next.which]!.at(-1),
            );
          }
          store.checkInvariants();
        }
      },
    ),
    { numRuns: fuzzRuns(300) },
  );
  expect(continued).toBeGreaterThan(0);
  expect(removed).toBeGreaterThan(0);
});
