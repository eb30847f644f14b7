/** The benches of a dated run: arguments of `kvasir bench`, with `Q8_0` and `Q4_K_M` for the models. */
export interface StandardBench {
  readonly args: readonly string[];
  readonly model?: 'Q8_0' | 'Q4_K_M';
}

const latency = ['latency', '--prompt-len', '512', '--gen-len', '64', '--repetitions', '3', '--depth'];
const throughput = ['throughput', '--peer', 'libllama', '--repetitions', '2', '--workload'];
const libllama = ['--peer', 'libllama'];

/** What is promised of both types of weights. */
const ofBoth: readonly (readonly string[])[] = [
  [...latency, '0,2048,8192', ...libllama],
  [...latency, '0', '--batch', '8', ...libllama],
  [...latency, '0', '--numerics', 'fast'],
  [...throughput, 'independent', '--requests', '1,8'],
  [...throughput, 'shared-prefix', '--requests', '16'],
];

const schedules = 'recovery --requests 8 --prefixes 2 --prefix-len 128 --kv-cache-memory 12MiB'.split(' ');

/**
 * The whole set takes about 35 minutes on two cores of a Zen 5 with models of 0.6B, two thirds of them libllama's: what
 * takes longest is measured on one type of weights, and ShareGPT's lengths of 64 requests once.
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
  { args: ['scheduler'] },
  { args: ['recovery'] },
  // A pool that is too small for all prompts, so that blocks are loaded again and again.
  { args: [...schedules, '--schedules', '1000'] },
];

/** As it stands in a results file: as typed, but for folders. */
export function commandOf({ args, model }: StandardBench, threads: string): string {
  return `kvasir bench ${argumentsOf({ args, model }, threads, (file) => file).join(' ')}`;
}

/** `pathOf`: of a model's file. The scheduler's bench has no threads that compute. */
export function argumentsOf(
  { args, model }: Pick<StandardBench, 'args'> & { readonly model: StandardBench['model'] | undefined },
  threads: string,
  pathOf: (file: string) => string,
): string[] {
  return [
    ...args,
    ...(args[0] === 'scheduler' ? [] : ['--threads', threads]),
    ...(model === undefined ? [] : ['--model', pathOf(`${model}.gguf`)]),
    '--json',
  ];
}

/**
 * A part of a set, in its order: by numbers from 1 on with commas or dashes between them, or by a regular expression that
 * the command matches.
 */
export function chosenBenches(set: readonly StandardBench[], only: string, threads: string): StandardBench[] {
  if (!/^\d+(-\d+)?(,\d+(-\d+)?)*$/.test(only)) {
    const pattern = new RegExp(only);
    return set.filter((bench) => pattern.test(commandOf(bench, threads)));
  }
  const ranges = only.split(',').map((part) => part.split('-').map(Number));
  return set.filter((_, i) => ranges.some(([from = 0, to = from]) => from <= i + 1 && i + 1 <= to));
}
