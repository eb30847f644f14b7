import { describe, expect, it } from 'vitest';
import type { ConversationItem } from './conversation-items.ts';
import { itemsOf, ResponseStore } from './response-store.ts';

const message = (text: string): ConversationItem => ({ kind: 'message', role: 'user', text });
const response = (id: string, text: string, history?: ReturnType<ResponseStore['history']>) => ({
  id,
  json: `{"id":"${id}"}`,
  history,
  items: [message(text)],
  outputItems: new Map([[`msg_${id}`, message(text)]]),
});

describe('the store of responses', () => {
  it('keeps 10,000 responses of a conversation within its bytes, and counts each turn once', () => {
    const store = new ResponseStore(64 * 1024 ** 2);
    for (let i = 0; i < 10_000; i++) store.put(response(`${i}`, `turn ${i}`, store.history(`${i - 1}`)));
    expect(store.size).toBe(10_000);
    expect(store.bytes).toBeLessThan(10_000 * 3500);
    expect(itemsOf(store.history('9999'))).toHaveLength(10_000);
    store.checkInvariants();
  });

  it('removes what was unused for the longest time', () => {
    const store = new ResponseStore(100_000);
    for (let i = 0; i < 10_000; i++) {
      store.put(response(`${i}`, 'x'.repeat(1000)));
      expect(store.json('0')).toBeDefined();
    }
    expect(store.size).toBeGreaterThan(10);
    expect(store.size).toBeLessThan(100);
    expect(store.json('9999')).toBeDefined();
    expect(store.json('1')).toBeUndefined();
    store.checkInvariants();
  });

  it('does not keep a response that is larger than the store, and removes the others only for room', () => {
    const store = new ResponseStore(50_000);
    store.put(response('large', 'x'.repeat(50_000)));
    expect(store.json('large')).toBeUndefined();
    expect(store).toMatchObject({ bytes: 0, size: 0 });
  });

  it('frees the turns of deleted responses when no response needs them', () => {
    const store = new ResponseStore(1_000_000);
    store.put(response('a', 'x'.repeat(10_000)));
    const alone = store.bytes;
    store.put(response('b', '', store.history('a')));
    store.delete('a');
    expect(store.bytes).toBeGreaterThan(20_000);
    expect(itemsOf(store.history('b'))).toHaveLength(2);
    store.delete('b');
    expect(store.bytes).toBe(0);
    expect(alone).toBeGreaterThan(20_000);
    store.checkInvariants();
  });

  it('counts the turns of a response again that was deleted while a request continued it', () => {
    const store = new ResponseStore(1_000_000);
    store.put(response('a', 'x'.repeat(10_000)));
    const history = store.history('a');
    store.delete('a');
    expect(store.bytes).toBe(0);
    store.put(response('b', 'y', history));
    expect(store.bytes).toBeGreaterThan(20_000);
    store.checkInvariants();
  });
});
