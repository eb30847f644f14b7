import { afterAll, describe, expect, it } from 'vitest';
import { backendFeatures } from '../ggml/backend-features.ts';
import { openDevice } from '../ggml/device.ts';
import { GGML_VERSION, nativeVersions } from '../ggml/native-package.ts';
import type { RopeConfig } from '../ggml/rope-config.ts';
import { type NumericsSettings, numericsIdentity } from './numerics-identity.ts';
import { operationBits } from './operation-bits.ts';

const device = openDevice({ device: 'cpu', threads: 1, exact: true });
afterAll(() => device.close());

const rope: RopeConfig = {
  ...{ mode: 'neox', scaling: 'none', dimension: 64, freqBase: 10_000, freqScale: 1 },
  ...{ extFactor: 0, attnFactor: 1, betaFast: 32, betaSlow: 1, originalContextLength: 4096 },
};
const settings: NumericsSettings = {
  isExact: true,
  repack: true,
  attention: 'attention of tests',
  tiles: 'matmuls of tests',
  operations: 'operations of tests',
  rotation: 'rotation of tests',
  mixers: 'mixers of tests',
  isSameOnAllCpus: true,
  hasExperts: true,
  ropes: [rope],
  attentionScale: 1 / 8,
};
const isLinux = process.platform === 'linux';

describe('the identity of exact numerics', () => {
  it("names ggml's version and commit, and every kernel of Kvasir", async () => {
    const identity = await numericsIdentity(device, settings);
    const { attention, tiles, operations, rotation, mixers } = settings;
    for (const part of [GGML_VERSION, nativeVersions[0].commit, attention, tiles, operations, rotation, mixers!])
      expect(identity).toContain(part);
  });

  it.each<Partial<NumericsSettings>>([
    { isExact: false },
    { repack: false },
    { attention: 'another' },
    { tiles: 'another' },
    { operations: 'another' },
    { rotation: 'another' },
    { ropes: [{ ...rope, freqBase: 10_001 }] },
    { attentionScale: 1 / 9 },
    { temperature: 'another' },
    { mixers: 'another' },
    // Which of equal scores is chosen does not matter without experts.
    { hasExperts: false },
  ])('is another one with %o', async (changed) => {
    const all = [settings, { ...settings, ...changed }].map((each) => numericsIdentity(device, each));
    const [before, after] = await Promise.all(all);
    expect(after).not.toBe(before);
  });

  it('names the bits of the operations that are left to ggml, and neither the CPU nor the C library', async () => {
    const identity = await numericsIdentity(device, settings);
    const features = backendFeatures(device);
    expect(features).toContain('=1');
    expect(identity).toContain(operationBits(device));
    expect(identity).not.toContain(features);
    expect(identity).not.toMatch(/libc|linux|darwin|win32|x64|arm64/);
  });

  it('names the instructions and the C library if ggml also computes matmuls', async () => {
    const identity = await numericsIdentity(device, { ...settings, isSameOnAllCpus: false });
    expect(identity).toContain(backendFeatures(device));
    expect(identity).not.toContain(operationBits(device));
    if (isLinux) expect(identity).toMatch(/glibc \d+\.\d+|another libc/);
  });
});
