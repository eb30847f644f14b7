/** The example connector of docs/write-a-connector.md, as a registered class and as a module: the texts stay the same. */
import { afterEach, describe, expect, it } from 'vitest';
import { MapConnector } from '../examples/map-connector.ts';
import type { JsonObject } from '../src/base/json.ts';
import { createEngine } from '../src/compose.ts';
import { registerConnector } from '../src/connector/registry.ts';
import type { AsyncEngine, OutputDelta } from '../src/engine/contract.ts';
import type { EngineOptions } from '../src/engine/options.ts';
import { buildCommand } from './support/cli-process.ts';
import { smallDemo } from './support/small-demo.ts';

registerConnector('RegisteredMap', async () => MapConnector);

const opened: AsyncEngine[] = [];
afterEach(async () => {
  for (const engine of opened.splice(0)) await engine.close();
});

async function open(options: Partial<EngineOptions>): Promise<AsyncEngine> {
  const engine = await createEngine({ ...smallDemo, ...options });
  opened.push(engine);
  return engine;
}

const prompt = 'There was a fox in the wood. '.repeat(12);

async function completion(engine: AsyncEngine, kvTransferParams: JsonObject = {}) {
  const deltas: OutputDelta[] = [];
  const params = { maxTokens: 24, temperature: 0.8, seed: 5n, ignoreEos: true, logprobs: 1 };
  for await (const delta of engine.generate({ prompt, params, kvTransferParams })) deltas.push(delta);
  return {
    text: deltas.map(({ text }) => text).join(''),
    logprobs: deltas.flatMap(({ logprobs }) => logprobs ?? []),
    externalTokens: deltas.at(-1)?.stats.externalTokens ?? 0,
  };
}

async function alone() {
  const { text, logprobs } = await completion(await open({}));
  return { text, logprobs };
}

const transfer = (kvConnector: string, store: string, more: object = {}): Partial<EngineOptions> => ({
  kvTransferConfig: {
    kvConnector,
    kvRole: 'kv_both',
    kvConnectorExtraConfig: { store },
    kvLoadFailurePolicy: 'recompute',
    ...more,
  },
});

describe('MapConnector', () => {
  it('loads blocks in a second engine that the first engine has saved, with a name that the program registers', async () => {
    const expected = await alone();
    const first = await open(transfer('RegisteredMap', 'a'));
    expect(await completion(first)).toEqual({ ...expected, externalTokens: 0 });
    await first.close();
    const second = await open(transfer('RegisteredMap', 'a'));
    const loaded = await completion(second);
    expect(loaded).toMatchObject(expected);
    expect(loaded.externalTokens).toBeGreaterThan(32);
    const { counters } = second.stats().transfers;
    expect(counters['map.orderedBlocks']! * 16).toBe(loaded.externalTokens);
    await second.close();
    const skipping = await open(transfer('RegisteredMap', 'a'));
    expect(await completion(skipping, { skip_load: true })).toEqual({ ...expected, externalTokens: 0 });
  });

  it('loads as a compiled module, and the text stays the same when loads fail', async () => {
    await buildCommand();
    const expected = await alone();
    const module = { kvConnectorModulePath: 'dist/examples/map-connector.js' };
    await (async () => {
      const first = await open(transfer('MapConnector', 'b', module));
      expect(await completion(first)).toMatchObject(expected);
      await first.close();
    })();
    const faults = { store: 'b', fault_injection: { rules: [{ fault: 'missing', blocks: [1, 3] }] } };
    const second = await open(transfer('MapConnector', 'b', { ...module, kvConnectorExtraConfig: faults }));
    const loaded = await completion(second);
    expect(loaded).toMatchObject(expected);
    expect(loaded.externalTokens).toBeGreaterThan(32);
  });
});
