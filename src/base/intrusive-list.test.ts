import { expect, test } from 'vitest';
import { IntrusiveList } from './intrusive-list.ts';
import { Prng } from './prng.ts';

const contents = (list: IntrusiveList): number[] => {
  const found: number[] = [];
  for (let at = list.first(); at !== undefined; at = list.after(at)) found.push(at);
  return found;
};

test('keeps the order of ids pushed at both ends', () => {
  const list = new IntrusiveList(5);
  list.pushBack(3);
  list.pushBack(1);
  list.pushFront(4);
  expect(contents(list)).toEqual([4, 3, 1]);
  list.remove(3);
  expect(contents(list)).toEqual([4, 1]);
  expect(list.has(3)).toBe(false);
  expect(list.size).toBe(2);
});

test('refuses to insert an id twice or out of range, and to remove an absent id', () => {
  const list = new IntrusiveList(2);
  list.pushBack(0);
  expect(() => list.pushBack(0)).toThrow('cannot insert 0');
  expect(() => list.remove(1)).toThrow('does not contain 1');
  expect(() => list.pushBack(2)).toThrow('cannot insert 2');
});

test('equals an array after each of 5000 random operations', () => {
  const prng = new Prng(7);
  const list = new IntrusiveList(20);
  const reference: number[] = [];
  for (let i = 0; i < 5000; i++) {
    const id = prng.between(0, 19);
    const place = reference.indexOf(id);
    expect(list.has(id)).toBe(place >= 0);
    if (place >= 0) {
      list.remove(id);
      reference.splice(place, 1);
    } else if (prng.chance(0.5)) {
      list.pushBack(id);
      reference.push(id);
    } else {
      list.pushFront(id);
      reference.unshift(id);
    }
    list.checkInvariants();
    expect(list.first()).toBe(reference[0]);
  }
  expect(contents(list)).toEqual(reference);
});
