import fc from 'fast-check';
import { expect, test } from 'vitest';
import { placeName } from './block-place.ts';
import { ByPlace } from './by-place.ts';
import { blockIndex, groupIndex } from './ids.ts';

const place = fc.record({ group: fc.nat(2).map(groupIndex), index: fc.nat(6).map(blockIndex) });
const items = fc.uniqueArray(place, { selector: placeName, maxLength: 12 });

test('items are found as in a map from which each found item is removed', () => {
  fc.assert(
    fc.property(items, fc.array(place, { maxLength: 20 }), (all, asked) => {
      const found = new ByPlace(all);
      const expected = new Map(all.map((item) => [placeName(item), item]));
      for (const one of [...all.slice(0, 3), ...asked, ...all]) {
        expect(found.take(one)).toBe(expected.get(placeName(one)));
        expected.delete(placeName(one));
      }
    }),
  );
});
