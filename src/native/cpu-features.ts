import { readFile } from 'node:fs/promises';
import { cpus } from 'node:os';

/** Instructions that decide which kernels compute, and so the order in which numbers are added. */
const vectorFeature = /\b(?:ssse3|sse4_[12]|avx\w*|fma|f16c|amx\w*|asimd\w*|sve\w*|i8mm|bf16|fphp)\b/g;

/**
 * `KVASIR_CPU_FLAGS=-march=haswell` compiles for another CPU. Tests and benches use it to run the forms of kernels that
 * other CPUs have. Usually undefined.
 */
export const demandedCpuFlags = (): string | undefined => process.env.KVASIR_CPU_FLAGS?.trim() || undefined;

/**
 * All that this CPU's kernels depend on: machines with equal features compute KV with equal bits. If the system does
 * not list instructions, the text has the CPU's name instead. If kernels are compiled for another CPU, the text has the
 * flags.
 */
export async function cpuFeatures(): Promise<string> {
  const own = `${process.arch} ${featuresIn(await cpuInfo()) ?? cpus()[0]?.model ?? 'unknown'}`;
  const demanded = demandedCpuFlags();
  return demanded === undefined ? own : `${own} ${demanded}`;
}

/** The features of the first core in `/proc/cpuinfo`; undefined if no line lists features. */
export function featuresIn(details: string): string | undefined {
  const line = lineIn(details);
  return line === undefined ? undefined : [...new Set(line.match(vectorFeature))].sort(byText).join(' ');
}

/** All features that the system lists, not only those of vectors; undefined if it lists none. */
export async function listedFeatures(): Promise<ReadonlySet<string> | undefined> {
  const line = lineIn(await cpuInfo());
  return line === undefined ? undefined : new Set(line.trim().split(/\s+/));
}

const cpuInfo = (): Promise<string> => readFile('/proc/cpuinfo', 'utf8').catch(() => '');

const lineIn = (details: string): string | undefined => /^(?:flags|Features)\s*:(.*)$/m.exec(details)?.[1];

const byText = (a: string, b: string): number => (a < b ? -1 : 1);
