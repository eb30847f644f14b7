import { expect, test } from 'vitest';
import { connected, fillLoad } from './connected.ts';
import { blocksOf, harness, range, shape, short } from './harness.ts';

/** Two requests with equal prompts and outputs. After the prompt, each fills blocks of its own with the same tokens. */
function duplicates() {
  const world = harness(40);
  world.scheduler.add(short('one', range(8), 12));
  world.scheduler.add(short('two', range(8), 12));
  for (let i = 0; i < 6; i++) world.step();
  const plan = world.scheduler.plan()!;
  expect(shape(plan)).toEqual(['one: 13-14', 'two: 13-14']);
  const [ones, twos] = ['one', 'two'].map((id) => blocksOf(plan, id, [0, 1, 2]));
  expect(ones!.slice(0, 2)).toEqual(twos!.slice(0, 2));
  expect(ones![2]).not.toBe(twos![2]);
  return { ...world, plan, ones: ones!, twos: twos! };
}
const alone = () => {
  const world = harness(40);
  world.scheduler.add(short('one', range(8), 12));
  world.drain();
  return world.outputs.get('one');
};

test('an invalid block is not computed again if another request has computed the same tokens', () => {
  const { apply, step, drain, plan, ones, twos, outputs, finished, scheduler } = duplicates();
  apply(plan, [ones[2]!]);
  const next = step();
  expect(shape(next)).toEqual(['two: 14-15', 'one: 13-14']);
  expect(blocksOf(next, 'one', [2])).toEqual([twos[2]]);
  drain();
  expect(finished.get('one')!.stats.recomputedTokens).toBe(1);
  for (const id of ['one', 'two']) expect(outputs.get(id)).toEqual(alone());
  expect(scheduler.stats().blocks.referenced).toBe(0);
});

test('if the other copy is invalid too, each request computes its own block again', () => {
  const { apply, step, drain, plan, ones, twos, outputs } = duplicates();
  apply(plan, [ones[2]!, twos[2]!]);
  expect(shape(step())).toEqual(['one: 8-12 13-14', 'two: 8-12 13-14']);
  drain();
  for (const id of ['one', 'two']) expect(outputs.get(id)).toEqual(alone());
});

test('a request that waited for a load does not compute what another request computed for its prompt logprobs', () => {
  const world = connected(40);
  const waits = short('waits', range(64), 1);
  world.connector.blocks = ({ id }) => (id === 'waits' ? 1 : 0);
  world.scheduler.add(waits);
  expect(shape(world.step())).toEqual([]);
  // It computes all tokens of its prompt, into blocks of its own.
  world.scheduler.add(short('asks', range(48), 1, { params: { promptLogprobs: 1 } }));
  expect(shape(world.step())).toEqual(['asks: 0-48']);
  const load = world.loads.get('waits')!;
  fillLoad(world, load, waits);
  world.step([{ load }]);
  expect(shape(world.step())).toEqual(['waits: 48-64']);
});
