import { assert } from '../src/base/assert.ts';
import { NULL_BLOCK } from '../src/core/ids.ts';
import { stateOfCell } from '../src/kv/draw-blocks.ts';
import type { Scheduler } from '../src/scheduler/scheduler.ts';

/** What people see of the pool and the requests agrees with the scheduler's counts, also while a step is in flight. */
export function checkWatched(scheduler: Pick<Scheduler, 'inspector' | 'stats'>): void {
  const { inspector } = scheduler;
  const { blocks, running, waiting, waitingForRemoteKv, transfers } = scheduler.stats();
  const counters = Object.entries({ ...transfers.counters, ...transfers.connector.tiers });
  for (const [name, count] of counters) assert(typeof count !== 'number' || count >= 0, `${name} is ${count}`);
  const cells = new Uint8Array(inspector.spec.blockCount);
  inspector.drawBlocks(cells);
  const states = Array.from(cells, stateOfCell).filter((_, block) => block !== NULL_BLOCK);
  const free = states.filter((state) => state === 'free').length;
  const cached = states.filter((state) => state === 'cached').length;
  assert(free === blocks.free, `${free} blocks are drawn as free, and ${blocks.free} are free`);
  assert(cached === blocks.cached, `${cached} blocks are drawn as cached, and ${blocks.cached} are cached`);
  const requests = inspector.requests();
  const known = running + waiting + waitingForRemoteKv;
  assert(requests.length === known, `${requests.length} requests are shown, and ${known} have not ended`);
  const withContent = new Set<number>(inspector.blocksWithContent());
  for (const { id } of requests) {
    const tables = inspector.tablesOf(id);
    assert(inspector.statsOf(id) !== undefined, `request ${id} has numbers`);
    assert(tables?.length === inspector.spec.groups.length, `request ${id} has a table for each group`);
    for (const block of inspector.blocksWithContent(id)) assert(withContent.has(block), `block ${block} has content`);
  }
}
