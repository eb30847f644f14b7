/**
 * Fault injection into a user's connector whose sides give no tier to the injector, with the bundled model: with every fault, the texts are
 * those of an engine without a connector.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { blockedThreadCount } from '../src/base/call-thread.ts';
import type { JsonObject } from '../src/base/json.ts';
import { createEngine } from '../src/compose.ts';
import { type FaultKind, faultKinds } from '../src/connector/fault/fault-rules.ts';
import type { AsyncEngine } from '../src/engine/contract.ts';
import { buildCommand } from './support/cli-process.ts';
import { inLongForm } from './support/long-form.ts';
import { smallDemo } from './support/small-demo.ts';
import { until } from './support/until.ts';

const folder = mkdtempSync(join(tmpdir(), 'kvasir-own-sides-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const module = join(folder, 'own-sides.mjs');
writeFileSync(
  module,
  `import { MapConnector } from '${pathToFileURL(resolve('dist/examples/map-connector.js')).href}';
   export class OwnSides extends MapConnector {
     openScheduler({ wrapTier, ...context }) { return super.openScheduler(context); }
     openWorker({ wrapTier, ...context }) { return super.openWorker(context); }
   }`,
);

/** Of a greedy request and of a seeded one. Both load. */
const prompts = ['There was a fox in the wood. ', 'A bird sang in the tree. '].map((sentence) => sentence.repeat(12));

/** The texts with log probabilities. */
async function textsOf(engine: AsyncEngine): Promise<string> {
  const parts: unknown[] = [];
  for (const [i, sampling] of [{ temperature: 0 }, { temperature: 0.8, seed: 5n }].entries()) {
    const prompt = prompts[i]!;
    const params = { maxTokens: 16, ignoreEos: true, logprobs: 1, ...sampling };
    for await (const { text, logprobs } of engine.generate({ prompt, params })) parts.push(text, logprobs);
  }
  return JSON.stringify(parts);
}

const transfer = (extra: JsonObject) => ({
  kvTransferConfig: {
    kv_connector: 'OwnSides',
    kv_role: 'kv_both',
    kv_connector_module_path: module,
    kv_connector_extra_config: extra,
  },
});

const open = (extra?: JsonObject): Promise<AsyncEngine> =>
  createEngine({
    ...smallDemo,
    ...(extra === undefined ? {} : transfer(extra)),
  });

let expected: string;
beforeAll(async () => {
  await buildCommand();
  const alone = await open();
  expected = await textsOf(alone);
  await alone.close();
  const writer = await open({ store: 'filled' });
  expect(await textsOf(writer)).toBe(expected);
  await writer.close();
});

const onLoad = faultKinds.flatMap((fault, i) =>
  inLongForm([true, false], [i % 2 === 0]).map((isAsync) => [fault, 'load', isAsync] as const),
);
const onOthers = (['missing', 'error', 'slow', 'hung'] as const).flatMap((fault) => [
  [fault, 'has', true] as const,
  [fault, 'store', true] as const,
]);

describe('the texts stay the same', () => {
  it.each([...onLoad, ...inLongForm(onOthers, onOthers.slice(-2))])(
    'with %s on %s, async loads: %s',
    async (fault: FaultKind, on, async_load) => {
      const rules = [{ fault, on, delay_ms: 30, ...(on === 'load' ? { blocks: [1, 4] } : {}) }];
      // Stores need blocks that are not stored yet.
      const store = on === 'store' ? `${fault} on store` : 'filled';
      const engine = await open({ store, async_load, fault_injection: { rules } });
      const texts = textsOf(engine);
      if (fault === 'hung') await until(() => blockedThreadCount() === 1);
      expect(await texts).toBe(expected);
      const { counters } = engine.stats().transfers;
      expect(counters[`injected.${fault}`]).toBeGreaterThan(0);
      expect(counters[`tier.injected.${fault}`]).toBeUndefined();
      // The other blocks are loaded.
      if (on === 'load') expect(counters.loadedBlocks).toBeGreaterThanOrEqual(8);
      await engine.close();
      await until(() => blockedThreadCount() === 0);
    },
  );
});

it.each(inLongForm(['await engine.close()', 'process.exit(0)'], ['await engine.close()']))(
  'a program ends although calls hang that ignore aborts: %s',
  (end) => {
    const rules = ['has', 'load', 'store'].map((on) => ({ fault: 'hung', on, ignores_abort: true }));
    const script = `
    import { createEngine } from ${JSON.stringify(pathToFileURL(resolve('dist/bundle/src/index.js')).href)};
    const engine = await createEngine(${JSON.stringify({ ...smallDemo, ...transfer({ fault_injection: { rules } }) })});
    let count = 0;
    const params = { maxTokens: 8, ignoreEos: true };
    for await (const { tokenIds } of engine.generate({ prompt: ${JSON.stringify(prompts[0])}, params })) count += tokenIds.length;
    console.log(count);
    ${end};
  `;
    const options = { encoding: 'utf8', timeout: 100_000 } as const;
    const { status, stdout, stderr, pid } = spawnSync(process.execPath, ['--input-type=module', '-e', script], options);
    expect([status, stdout], stderr).toEqual([0, '8\n']);
    expect(readdirSync(tmpdir()).filter((name) => name.startsWith(`kvasir-hung-${pid}-`))).toEqual([]);
  },
);
