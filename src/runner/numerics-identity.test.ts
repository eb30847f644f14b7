import { afterAll, describe, expect, it } from 'vitest';
import { backendFeatures } from '../ggml/backend-features.ts';
import { openDevice } from '../ggml/device.ts';
import { GGML_COMMIT, GGML_VERSION } from '../ggml/native-package.ts';
import { type NumericsSettings, numericsIdentity } from './numerics-identity.ts';
import { operationBits } from './operation-bits.ts';

const device = openDevice({ device: 'cpu', threads: 1, exact: true });
afterAll(() => device.close());

const settings: NumericsSettings = {
  isExact: true,
  repack: true,
  attention: 'attention of tests',
  tiles: 'matmuls of tests',
  operations: 'operations of tests',
  mixers: 'mixers of tests',
  isSameOnAllCpus: true,
  ropes: [],
};
const isLinux = process.platform === 'linux';

describe('the identity of exact numerics', () => {
  it("names ggml's version and commit, the C library, and every kernel of Kvasir", async () => {
    const identity = await numericsIdentity(device, settings);
    const { attention, tiles, operations, mixers } = settings;
    for (const part of [GGML_VERSION, GGML_COMMIT, attention, tiles, operations, mixers!])
      expect(identity).toContain(part);
    if (isLinux) expect(identity).toMatch(/glibc \d+\.\d+|another libc/);
  });

  it.each<Partial<NumericsSettings>>([
    { isExact: false },
    { repack: false },
    { attention: 'another' },
    { tiles: 'another' },
    { operations: 'another' },
    { mixers: 'another' },
  ])('is another one with %o', async (changed) => {
    const all = [settings, { ...settings, ...changed }].map((each) => numericsIdentity(device, each));
    const [before, after] = await Promise.all(all);
    expect(after).not.toBe(before);
  });

  it('names the bits of the operations that are left to ggml, and no instructions of the CPU', async () => {
    const identity = await numericsIdentity(device, settings);
    const features = backendFeatures(device);
    expect(features).toContain('=1');
    if (isLinux) expect(identity).toContain(operationBits(device, []));
    expect(identity.includes(features)).toBe(!isLinux);
  });

  it('names the instructions if ggml also computes matmuls', async () => {
    const identity = await numericsIdentity(device, { ...settings, isSameOnAllCpus: false });
    expect(identity).toContain(backendFeatures(device));
    expect(identity).not.toContain(operationBits(device, []));
  });
});
