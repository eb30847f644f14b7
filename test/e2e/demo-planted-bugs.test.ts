/** What `kvasir demo` reports of an engine that recomputes more than necessary: its stages run with a bug in their processes. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { isProven, rowOf, type StageRow } from '../../src/cli/demo/report.ts';
import { Scenario } from '../../src/cli/demo/scenario.ts';
import { decodeStages, limits } from '../../src/cli/demo/stages.ts';
import { ServerProcess } from '../../src/cli/proof/server-process.ts';
import { buildCommand, mainInModules } from '../support/cli-process.ts';
import { inLongForm } from '../support/long-form.ts';
import { type PlantedBug, plantedBugs } from '../support/planted-bugs.ts';
import { environmentWith } from '../support/preload.ts';

const folder = mkdtempSync(join(tmpdir(), 'kvasir-demo-bugs-'));
afterAll(() => rmSync(folder, { recursive: true }));

/** The bug of the next stage's server; a variable, so that all stages share one prefill. */
let bug: PlantedBug | undefined;
const model = 'models/kvasir-demo.gguf';
const { signal } = new AbortController();
/** This process runs the sources, and servers run the build. */
const inBuild = (flag: string): string => flag.replace(/\/(src\/\S*\/proof-connector)\.ts/, '/dist/$1.js');
let scenario: Scenario;

beforeAll(async () => {
  await buildCommand();
  const flags = [model, '--threads', '1', '--kv-cache-memory', '64MiB', ...limits];
  scenario = await Scenario.open({
    ...{ folder, model, blockSize: 16, signal },
    start: (further) =>
      ServerProcess.start([...flags, ...further.map(inBuild)], signal, {
        path: mainInModules,
        environment: bug === undefined ? {} : environmentWith(bug, folder),
      }),
  });
  await scenario.prefill('prefill', 1);
});

async function rowWith(planted: PlantedBug | undefined, stage: string): Promise<StageRow> {
  bug = planted;
  return rowOf(await scenario.decode(decodeStages.find(({ name }) => name === stage)!));
}

// One stage with async loads; in the long form one with sync loads, too. Both have valid blocks after the invalid ones. `demo.test.ts` has
// these stages without a bug.
describe.each(inLongForm(['corrupt bytes', 'a hole in the middle'], ['corrupt bytes']))('the stage "%s"', (stage) => {
  it.each(inLongForm(['an engine without a bug'], []))('is proven with %s', async () => {
    expect(isProven(await rowWith(undefined, stage))).toBe(true);
  });

  it.each(inLongForm<readonly PlantedBug[]>(plantedBugs, ['recompute-from-first']))(
    'is not proven with the bug %s, although the text is the same',
    async (planted) => {
      const row = await rowWith(planted, stage);
      expect(row).toMatchObject({ isTextEqual: true, blocksEqual: row.blocksFailed });
      expect(row.computed).toBeGreaterThan(row.minimum);
      expect(row.recomputed).toBeGreaterThan(row.repairMinimum);
      expect(isProven(row)).toBe(false);
    },
  );
});
