import { afterAll, expect, test } from 'vitest';
import { CompiledCopies } from './compiled-copies.ts';
import { type Scenario, scenarios } from './world.ts';

/** KVASIR_SEED sets the first seed. A failure names its seed and the command that runs it again. */
const seed = Number(process.env.KVASIR_SEED ?? Math.floor(Math.random() * 2 ** 32));
const steps = Number(process.env.KVASIR_SIM_STEPS ?? 12_000) / 2;
const share: Readonly<Record<Scenario, number>> = {
  mixed: 0.3,
  local: 0.1,
  tiers: 0.15,
  crash: 0.15,
  storm: 0.1,
  offload: 0.15,
  spans: 0.05,
};

const copies = new CompiledCopies([]);
afterAll(() => copies.remove());

test.each(scenarios)(
  `no invariant fails in the worlds from seed ${seed} on: %s`,
  { timeout: Infinity },
  async (scenario) => {
    const { simulate } = await copies.simulator();
    const wanted = steps * share[scenario];
    expect((await simulate(seed, wanted, { scenario })).steps).toBeGreaterThanOrEqual(wanted);
  },
);
