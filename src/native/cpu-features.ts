import { readFile } from 'node:fs/promises';
import { cpus } from 'node:os';
import { demandedCpuFlags } from './compiler.ts';

/** Instructions that decide which kernels compute, and so in which order numbers are added. */
const vectorFeature = /\b(?:ssse3|sse4_[12]|avx\w*|fma|f16c|amx\w*|asimd\w*|sve\w*|i8mm|bf16|fphp)\b/g;

/**
 * What this CPU's kernels depend on, in words: machines with equal ones give KV equal bits. Where the system does not
 * list instructions, the CPU's name stands for them; kernels that were compiled for another CPU say for which.
 */
export async function cpuFeatures(): Promise<string> {
  const details = await readFile('/proc/cpuinfo', 'utf8').catch(() => '');
  const own = `${process.arch} ${featuresIn(details) ?? cpus()[0]?.model ?? 'unknown'}`;
  const demanded = demandedCpuFlags();
  return demanded === undefined ? own : `${own} ${demanded}`;
}

/** Of the first core that `/proc/cpuinfo` describes; undefined when it has no such line. */
export function featuresIn(details: string): string | undefined {
  const line = /^(?:flags|Features)\s*:(.*)$/m.exec(details)?.[1];
  return line === undefined ? undefined : [...new Set(line.match(vectorFeature))].sort(byText).join(' ');
}

const byText = (a: string, b: string): number => (a < b ? -1 : 1);
