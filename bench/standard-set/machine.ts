import { readFileSync } from 'node:fs';
import { availableParallelism, cpus, totalmem } from 'node:os';

/** The machine in words: `2 cores of an AMD EPYC (family 26 model 2; AVX-512, VNNI), 24 GiB, linux`. */
export function describeMachine(): string {
  const gigabytes = Math.round(totalmem() / 1024 ** 3);
  const cpu = describeCpu(cpus()[0]?.model ?? 'an unknown CPU', readDetails());
  return `${availableParallelism()} cores of ${cpu}, ${gigabytes} GiB, ${process.platform}`;
}

/** Only Linux has this file. */
function readDetails(): string {
  try {
    return readFileSync('/proc/cpuinfo', 'utf8');
  } catch {
    return '';
  }
}

/** The instruction sets that select kernels, with their names in Linux. */
const instructions = [
  ['avx2', 'AVX2'],
  ['avx512f', 'AVX-512'],
  ['avx_vnni', 'AVX-VNNI'],
  ['avx512_vnni', 'VNNI'],
  ['avx512_bf16', 'BF16'],
  ['avx512_fp16', 'FP16'],
  ['amx_int8', 'AMX'],
  ['asimddp', 'dot products'],
  ['i8mm', 'I8MM'],
  ['sve', 'SVE'],
] as const;

/** `details`: the text of `/proc/cpuinfo`. Virtual machines may hide the CPU's name, but keep its family and model. */
export function describeCpu(model: string, details: string): string {
  const field = (name: string): string | undefined => new RegExp(`^${name}\\s*:\\s*(.+)$`, 'm').exec(details)?.[1];
  const [family, number] = [field('cpu family'), field('model')];
  const flags = new Set(field('(?:flags|Features)')?.split(' '));
  const known = instructions.filter(([flag]) => flags.has(flag)).map(([, name]) => name);
  const parts = [
    ...(family === undefined || number === undefined ? [] : [`family ${family} model ${number}`]),
    ...(known.length === 0 ? [] : [known.join(', ')]),
  ];
  return parts.length === 0 ? model : `${model} (${parts.join('; ')})`;
}
