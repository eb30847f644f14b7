/** The driver is a part of the identity of stored KV, and what `kvasir doctor` shows. */
import { execFileSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { describeGpus, reportGpus } from '../../src/cli/doctor/gpu.ts';
import { openDevice } from '../../src/ggml/device.ts';
import { driverOf } from '../../src/ggml/gpu-driver.ts';
import { type NumericsSettings, numericsIdentity } from '../../src/runner/numerics-identity.ts';
import { buildCommand } from '../support/cli-process.ts';
import { needsGpu, testGpu } from '../support/gpu.ts';

const settings: NumericsSettings = {
  isExact: true,
  ropes: [],
  attentionScale: 1,
  repack: false,
  attention: 'gather',
  tiles: '',
  operations: '',
  rotation: '',
  isSameOnAllCpus: false,
  hasExperts: false,
};

describe('the driver of a GPU', needsGpu(), () => {
  it('has a version that is the same in each process, and is a part of the identity of KV', async () => {
    await buildCommand();
    const device = openDevice({ device: 'gpu', threads: 1, exact: true });
    try {
      const driver = await driverOf(device);
      expect(driver).toMatch(device.backendName === 'Vulkan' ? /^driver \d+ [0-9a-f]{32}$/ : /\d/);
      const script = `const { openDevice } = await import('./dist/src/ggml/device.js');
        const { driverOf } = await import('./dist/src/ggml/gpu-driver.js');
        console.log(await driverOf(openDevice({ device: 'gpu', threads: 1, exact: true })));`;
      const other = execFileSync(process.execPath, ['--input-type=module', '-e', script], { encoding: 'utf8' });
      expect(other.trim()).toBe(driver);
      for (const isExact of [true, false]) {
        const identity = await numericsIdentity(device, { ...settings, isExact });
        expect(identity).toContain(`${device.backendName} ${device.modelName}, ${driver}`);
        // A driver that is not known is one of the system.
        const unknown = await numericsIdentity({ ...device, modelName: 'another' }, { ...settings, isExact });
        expect(unknown).not.toContain(device.backendName === 'Vulkan' ? driver : device.modelName);
      }
    } finally {
      device.close();
    }
  });

  it('is in the report of kvasir doctor, with the memory, and says if it is software', async () => {
    const isSoftware = /llvmpipe|swiftshader/i.test(testGpu().description);
    const report = await reportGpus();
    expect(report.devices[0]).toMatchObject({ description: testGpu().description, isSoftware });
    expect(report.devices[0]!.totalBytes).toBeGreaterThan(0);
    expect(describeGpus(report)[0]!.endsWith('It is software: --device cpu is faster')).toBe(isSoftware);
  });
});
