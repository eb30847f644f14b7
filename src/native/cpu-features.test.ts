import { expect, it } from 'vitest';
import { cpuFeatures, featuresIn } from './cpu-features.ts';

it('featuresIn lists only the vector instructions, in one order', () => {
  const intel =
    'processor\t: 0\nmodel name\t: X\nflags\t\t: fpu vme avx512_vnni fma avx2 ibrs md_clear avx\n\nflags\t: fpu\n';
  expect(featuresIn(intel)).toBe('avx avx2 avx512_vnni fma');
  expect(featuresIn(intel.replace('avx2 ibrs md_clear avx', 'ssbd avx avx2'))).toBe(featuresIn(intel));
  expect(featuresIn(intel.replace('avx512_vnni ', ''))).not.toBe(featuresIn(intel));
  expect(featuresIn('Features\t: fp asimd aes asimddp i8mm')).toBe('asimd asimddp i8mm');
  expect(featuresIn('processor\t: 0\n')).toBeUndefined();
});

it('cpuFeatures is the same at every call, and has more than the architecture', async () => {
  expect(await cpuFeatures()).toBe(await cpuFeatures());
  expect((await cpuFeatures()).length).toBeGreaterThan(process.arch.length + 1);
});
