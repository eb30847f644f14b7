/** The benches of a dated run: arguments of `kvasir bench`, with `Q8_0` and `Q4_K_M` for the models. */
export interface StandardBench {
  readonly args: readonly string[];
  readonly model?: 'Q8_0' | 'Q4_K_M';
}

const latency = ['latency', '--prompt-len', '512', '--gen-len', '64', '--peer', 'libllama'];
const throughput = ['throughput', '--peer', 'libllama', '--workload'];

export const standardSet: readonly StandardBench[] = [
  { model: 'Q8_0', args: [...latency, '--depth', '0,2048,8192', '--repetitions', '3'] },
  { model: 'Q4_K_M', args: [...latency, '--depth', '0,2048', '--repetitions', '3'] },
  { model: 'Q8_0', args: [...latency, '--depth', '0', '--repetitions', '3', '--numerics', 'fast'] },
  { model: 'Q4_K_M', args: [...latency, '--depth', '0', '--repetitions', '3', '--numerics', 'fast'] },
  { model: 'Q8_0', args: [...throughput, 'independent', '--requests', '1,8', '--repetitions', '2'] },
  { model: 'Q8_0', args: [...throughput, 'shared-prefix', '--requests', '16', '--repetitions', '2'] },
  { model: 'Q8_0', args: [...throughput, 'multi-turn', '--requests', '8', '--repetitions', '2'] },
  { model: 'Q8_0', args: [...throughput, 'sharegpt', '--requests', '16,64', '--repetitions', '1'] },
  { model: 'Q8_0', args: ['transfer', '--repetitions', '3'] },
  { args: ['scheduler'] },
  { args: ['recovery'] },
];
