import { appendFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, test } from 'vitest';
import { CompiledCopies } from './compiled-copies.ts';
import { noFaults } from './faults.ts';
import { mutants } from './mutants.ts';
import type { World } from './world.ts';
const wanted = /by the policy `fail`, a request|a removed block is stored afterwards|short prompts are admitted again|a running state is used after|a request that only loads ends before|a removal frees a block|drafts continue outputs of requests w|blocks of a pin that has ended|the key does not depend on the finger|a request that only loads gets a runn|tokens that depend on invalid tokens/;
const list = mutants.map((mutant, index) => ({ ...mutant, index })).filter(({ bug }) => wanted.test(bug));
const copies = new CompiledCopies(mutants);
afterAll(() => copies.remove());
test.each(list)('$bug', async ({ breaks, seed, scenario = 'mixed', faults, checks = true, index, bug }) => {
  const { World: W } = (await import(join(copies.folderOf(index), 'sim/world.js'))) as { World: typeof World };
  const options = { scenario, checks, ...(faults === undefined ? {} : { faults: { ...noFaults, ...faults } }) };
  const found: string[] = [];
  for (let s = seed; s < seed + 600 && found.length < 3; s++) {
    const t = performance.now();
    try { new W(s, options).run(60); } catch (e) {
      const [line = ''] = String(e).split('\n');
      if (breaks.some((what) => line.includes(/^I\d+$/.test(what) ? `${what}:` : what))) found.push(`${s} (${Math.round(performance.now() - t)} ms)`);
    }
  }
  appendFileSync('/tmp/found.txt', `${bug} | seed ${seed} | ${found.join(', ')}\n`);
}, 600_000);
