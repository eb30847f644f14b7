/** The forms of the kernels for matmuls, of which a CPU can run some. */
import { cpuFeatures } from '../../src/native/cpu-features.ts';
import { hasCompiler } from './has-compiler.ts';
import { inLongForm } from './long-form.ts';

export const allTypes = [
  ...(['F16', 'BF16', 'Q8_0', 'Q4_0', 'Q4_1', 'Q5_0', 'Q5_1', 'MXFP4', 'IQ4_NL'] as const),
  ...(['IQ4_XS', 'Q2_K', 'Q3_K', 'Q4_K', 'Q5_K', 'Q6_K'] as const),
] as const;
export type TypeName = (typeof allTypes)[number];

/** The default form has a type for each way to multiply. */
export const testedTypes: readonly TypeName[] = inLongForm<readonly TypeName[]>(allTypes, [
  'F16',
  'Q8_0',
  'Q4_0',
  'Q5_1',
  'MXFP4',
  'Q4_K',
  'Q5_K',
  'Q6_K',
]);

/** Where a block in ggml's layout has its scales in F16, in bytes. */
export const floatsIn: Readonly<Record<TypeName, readonly number[]>> = {
  F16: [0],
  BF16: [0],
  Q8_0: [0],
  Q4_0: [0],
  Q4_1: [0, 2],
  Q5_0: [0],
  Q5_1: [0, 2],
  MXFP4: [],
  IQ4_NL: [0],
  IQ4_XS: [0],
  Q2_K: [80, 82],
  Q3_K: [108],
  Q4_K: [0, 2],
  Q5_K: [0, 2],
  Q6_K: [208],
};

export interface Form {
  readonly name: string;
  /** Whether this machine can run the form. */
  readonly isSupported: boolean;
  /** The flags of a CPU with fewer instructions; undefined for this CPU. */
  readonly cpuFlags: string | undefined;
}

const features = (await cpuFeatures()).split(' ');
const hasAvx2 = ['avx2', 'fma', 'f16c'].every((feature) => features.includes(feature));
export const hasKernels = hasCompiler && process.arch === 'x64' && hasAvx2;
const avx2Flags = '-mavx2 -mfma -mf16c';
export const emulated = 'AMX (emulated)';
export const hasAmx = features.includes('amx_int8');
export const hasAvx512Vnni =
  hasKernels && ['avx512bw', 'avx512vl', 'avx512_vnni'].every((name) => features.includes(name));
/** The forms of the kernels: tests of a form that the machine cannot run are listed as skipped. */
export const forms: Form[] = [
  { name: 'this CPU', isSupported: hasKernels, cpuFlags: undefined },
  { name: 'AVX2', isSupported: hasKernels, cpuFlags: avx2Flags },
  { name: 'AVX-VNNI', isSupported: hasKernels && features.includes('avx_vnni'), cpuFlags: `${avx2Flags} -mavxvnni` },
  { name: emulated, isSupported: hasAvx512Vnni, cpuFlags: '-march=native -DAMX_EMULATED=1' },
  // A CPU with AMX has it in its own form; this is the form without it.
  { name: 'AVX-512 VNNI', isSupported: hasAmx, cpuFlags: '-march=native -DWITHOUT_AMX' },
];
export const supportedForms = forms.filter(({ isSupported }) => isSupported);
export const missing = ({ name }: Form): string => {
  if (!hasKernels) return 'no C compiler, or a CPU for which there are no kernels';
  return name === 'AVX-512 VNNI' ? 'the CPU lacks AMX, so its own form is tested instead' : `the CPU lacks ${name}`;
};

/** In the short form, the types of each way of multiplying stand for the others in the forms of which few CPUs have some. */
const ofEachKind: readonly TypeName[] = ['F16', 'Q8_0', 'Q4_0', 'Q4_1', 'IQ4_XS', 'Q4_K', 'Q5_K', 'Q6_K'];

/** Kernels without a form for AMX would be compiled again with the same result. */
export const hasForm = (type: TypeName, { name }: Form): boolean => {
  if (name === emulated) return inLongForm(!type.endsWith('F16'), ['Q8_0', 'Q4_1', 'Q4_K', 'Q6_K'].includes(type));
  return name === 'this CPU' || name === 'AVX2' || inLongForm(true, ofEachKind.includes(type));
};
