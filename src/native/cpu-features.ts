import { readFile } from 'node:fs/promises';
import { cpus } from 'node:os';
import { demandedCpuFlags } from './compiler.ts';

/** Instructions that decide which kernels compute, and so the order in which numbers are added. */
const vectorFeature = /\b(?:ssse3|sse4_[12]|avx\w*|fma|f16c|amx\w*|asimd\w*|sve\w*|i8mm|bf16|fphp)\b/g;

/**
 * All that this CPU's kernels depend on: machines with equal features compute KV with equal bits. If the system does
 * not list instructions, the text has the CPU's name instead. If kernels are compiled for another CPU, the text has the
 * flags.
 */
export async function cpuFeatures(): Promise<string> {
  const details = await readFile('/proc/cpuinfo', 'utf8').catch(() => '');
  const own = `${process.arch} ${featuresIn(details) ?? cpus()[0]?.model ?? 'unknown'}`;
  const demanded = demandedCpuFlags();
  return demanded === undefined ? own : `${own} ${demanded}`;
}

/** The features of the first core in `/proc/cpuinfo`; undefined if no line lists features. */
export function featuresIn(details: string): string | undefined {
  const line = /^(?:flags|Features)\s*:(.*)$/m.exec(details)?.[1];
  return line === undefined ? undefined : [...new Set(line.match(vectorFeature))].sort(byText).join(' ');
}

const byText = (a: string, b: string): number => (a < b ? -1 : 1);
