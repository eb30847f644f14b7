/** A bench of a dated run: arguments of `kvasir bench`, and the weight type of the model. */
export interface StandardBench {
  readonly args: readonly string[];
  readonly model?: 'Q8_0' | 'Q4_K_M';
}

const latency = ['latency', '--prompt-len', '512', '--gen-len', '64', '--repetitions', '3', '--depth'];
const throughput = ['throughput', '--peer', 'libllama', '--repetitions', '2', '--workload'];
const libllama = ['--peer', 'libllama'];

/** The benches for both types of weights. */
const ofBoth: readonly (readonly string[])[] = [
  [...latency, '0,2048,8192', ...libllama],
  [...latency, '0', '--batch', '8', ...libllama],
  [...latency, '0', '--numerics', 'fast'],
  [...throughput, 'independent', '--requests', '1,8'],
  [...throughput, 'shared-prefix', '--requests', '16'],
];

const schedules = 'recovery --requests 8 --prefixes 2 --prefix-len 128 --kv-cache-memory 12MiB'.split(' ');

/**
 * The whole set takes about 45 minutes on two cores of a Zen 5 with models of 0.6B; libllama takes two thirds of them.
 * So the longest benches run on one type of weights, and ShareGPT with 64 requests has one repetition.
 */
export const standardSet: readonly StandardBench[] = [
  ...ofBoth.map((args) => ({ model: 'Q8_0' as const, args })),
  ...ofBoth.map((args) => ({ model: 'Q4_K_M' as const, args })),
  { model: 'Q8_0', args: [...throughput, 'multi-turn', '--requests', '8'] },
  { model: 'Q8_0', args: [...throughput, 'sharegpt', '--requests', '1,8'] },
  {
    model: 'Q8_0',
    args: ['throughput', ...libllama, '--repetitions', '1', '--workload', 'sharegpt', '--requests', '64'],
  },
  { model: 'Q8_0', args: ['transfer', '--repetitions', '3'] },
  { model: 'Q8_0', args: ['offloading', '--repetitions', '1'] },
  { args: ['tiers'] },
  { args: ['scheduler'] },
  { args: ['recovery'] },
  // The pool is too small for all prompts, so that blocks are loaded many times.
  { args: [...schedules, '--schedules', '1000'] },
];

/** The command in a results file: as typed, without folders. */
export function commandOf({ args, model }: StandardBench, threads: string): string {
  return `kvasir bench ${argumentsOf({ args, model }, threads, (file) => file).join(' ')}`;
}

/** Benches without a model have no compute threads. */
const withoutModel = ['tiers', 'scheduler'];

/** `pathOf` gives the path of a model file. */
export function argumentsOf(
  { args, model }: Pick<StandardBench, 'args'> & { readonly model: StandardBench['model'] | undefined },
  threads: string,
  pathOf: (file: string) => string,
): string[] {
  return [
    ...args,
    ...(withoutModel.includes(args[0] ?? '') ? [] : ['--threads', threads]),
    ...(model === undefined ? [] : ['--model', pathOf(`${model}.gguf`)]),
    '--json',
  ];
}

/**
 * A part of a set, in its order. `only` has numbers from 1 on with commas or dashes between them, or a regular expression
 * for the commands.
 */
export function chosenBenches(set: readonly StandardBench[], only: string, threads: string): StandardBench[] {
  if (!/^\d+(-\d+)?(,\d+(-\d+)?)*$/.test(only)) {
    const pattern = new RegExp(only);
    return set.filter((bench) => pattern.test(commandOf(bench, threads)));
  }
  const ranges = only.split(',').map((part) => part.split('-').map(Number));
  return set.filter((_, i) => ranges.some(([from = 0, to = from]) => from <= i + 1 && i + 1 <= to));
}
