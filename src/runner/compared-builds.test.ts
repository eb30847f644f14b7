import { expect, test } from 'vitest';
import { isComparedBuild } from './compared-builds.ts';

const linux = { platform: 'linux', arch: 'x64' };
const icelake = 'SSE3=1 SSSE3=1 AVX=1 AVX2=1 F16C=1 FMA=1 BMI2=1 AVX512=1 AVX512_VBMI=1 AVX512_VNNI=1 LLAMAFILE=1';

test('engines with builds of ggml that were compared may share KV', () => {
  expect(isComparedBuild(icelake, linux)).toBe(true);
  expect(isComparedBuild('SSE3=1 SSSE3=1 AVX=1 AVX2=1 F16C=1 FMA=1 BMI2=1 LLAMAFILE=1', linux)).toBe(true);
});

test.each([
  ['alderlake', `${icelake} AVX_VNNI=1`, linux],
  ['zen4', `${icelake} AVX512_BF16=1`, linux],
  ['sapphirerapids', `${icelake} AVX512_BF16=1 AMX_INT8=1`, linux],
  ['ARM', 'NEON=1 ARM_FMA=1', { platform: 'linux', arch: 'arm64' }],
  ['another system', icelake, { platform: 'darwin', arch: 'x64' }],
])('an engine with a build of ggml that was not compared has KV of its own: %s', (_, features, system) => {
  expect(isComparedBuild(features, system)).toBe(false);
});
