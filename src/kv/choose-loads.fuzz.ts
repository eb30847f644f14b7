import { expect, test } from 'vitest';
import { fuzzRuns } from '../../test/support/long-form.ts';
import { planTokensNaively } from '../../test/support/planner-reference.ts';
import { Prng } from '../base/prng.ts';
import { blockId, blockIndex, type TokenCount } from '../core/ids.ts';
import { chooseLoads } from './choose-loads.ts';
import { GroupProposal } from './group.ts';
import { planSpans } from './planner.ts';
import { SpanList } from './span-list.ts';

const runs = fuzzRuns(3000);
const firstSeed = Number(process.env.KVASIR_FUZZ_SEED ?? 1);

/** Brute force: a block is worth loading if the planner schedules more tokens without the block and with all others. */
test(`exactly the blocks that reduce the scheduled tokens are loaded, in ${runs} random states`, () => {
  const spans = new SpanList();
  for (let seed = firstSeed; seed < firstSeed + runs; seed++) {
    const prng = new Prng(seed);
    const tokenCount = prng.between(1, 40);
    const groups = Array.from({ length: prng.between(1, 3) }, () => randomProposal(prng, tokenCount));
    const before = planTokensNaively(tokenCount, groups);
    const expected = groups.map(({ external, validTokens, indexCount, blockSize }) =>
      Array.from({ length: indexCount }, (_, index) => {
        if (external[index] === 0) return false;
        validTokens[index] = 0;
        const without = planTokensNaively(tokenCount, groups);
        validTokens[index] = blockSize;
        return without.some((isComputed, token) => isComputed !== before[token]);
      }),
    );
    planSpans(tokenCount, groups, spans);
    for (const group of groups) chooseLoads(group, spans);
    const chosen = groups.map(({ external, indexCount }) =>
      Array.from(external.subarray(0, indexCount), (mark) => mark === 1),
    );
    expect(chosen, `rerun with KVASIR_FUZZ_SEED=${seed} KVASIR_FUZZ_RUNS=1`).toEqual(expected);
    expect(planTokensNaively(tokenCount, groups), `seed ${seed}: the chosen blocks are enough`).toEqual(before);
  }
});

function randomProposal(prng: Prng, tokenCount: number): GroupProposal {
  const kind = prng.pick(['full', 'window', 'state'] as const);
  const blockSize = prng.pick([1, 2, 3, 4, 8]) as TokenCount;
  const base = { blockSize, layers: [0] };
  const group = new GroupProposal(
    kind === 'window' ? { kind, ...base, window: prng.between(2, 12) as TokenCount } : { kind, ...base },
  );
  group.reset(Math.ceil(tokenCount / blockSize));
  const [local, external] = [prng.unit(), prng.unit()];
  for (let index = blockIndex(0); index < Math.floor(tokenCount / blockSize); index++) {
    if (prng.chance(local)) group.set(index, blockId(1), blockSize);
    else if (prng.chance(external)) group.setExternal(index);
  }
  return group;
}
