/** What lies in `bench/results/`: a dated run of benches, with the machine and the versions that it is true of. */
export interface ResultsFile {
  readonly date: string;
  readonly machine: string;
  /** Processes that wanted a core, over a minute, before the first bench began; absent in older files. */
  readonly loadBefore?: number;
  readonly versions: Readonly<Record<string, string>>;
  readonly commit: string;
  readonly models: string;
  readonly runs: readonly ResultsRun[];
}

export interface ResultsRun {
  /** As typed, but for folders. */
  readonly command: string;
  /** Where it is not the file's. */
  readonly commit?: string;
  /** What the bench wrote as JSON. */
  readonly rows: readonly ResultsRow[];
}

/** The fields that are compared with a peer; benches write more. */
export interface ResultsRow {
  readonly depth?: number;
  readonly prefill?: Comparison;
  readonly decode?: Comparison;
  readonly workload?: string;
  readonly requests?: number;
  readonly prefixLength?: number;
  readonly throughput?: Comparison;
}
export type Comparison = Readonly<Record<string, number>>;

/** One figure beside libllama's. */
export interface ComparedFigure {
  readonly label: string;
  readonly ours: number;
  readonly theirs: number;
  readonly ratio: number;
}

/** All figures with exact numerics that stand beside libllama's, in the order of the file. */
export function comparedFigures({ runs }: ResultsFile): ComparedFigure[] {
  return runs
    .filter(({ command }) => !command.includes('--numerics fast'))
    .flatMap(({ command, rows }) => rows.flatMap((row) => figuresOf(row, command)));
}

function figuresOf(row: ResultsRow, command: string): ComparedFigure[] {
  const weights = /--model (\S+)\.gguf/.exec(command)?.[1] ?? 'the demo model';
  const promptLength = /--prompt-len (\d+)/.exec(command)?.[1] ?? '512';
  const behind = row.depth === undefined || row.depth === 0 ? '' : ` behind ${row.depth} tokens`;
  return [
    ...figure(`${weights}, prompt of ${promptLength}${behind}`, row.prefill),
    ...figure(`${weights}, decode${behind}`, row.decode),
    ...figure(`${weights}, ${workloadLabel(row)}`, row.throughput),
  ];
}

/** Older files have one workload and do not name it. */
function workloadLabel({ workload = 'shared-prefix', requests = 0, prefixLength = 0 }: ResultsRow): string {
  const count = requests === 1 ? '1 request' : `${requests} requests`;
  if (workload === 'shared-prefix') return `${count} with ${prefixLength} common tokens`;
  if (workload === 'multi-turn') return `${requests === 1 ? '1 conversation' : `${requests} conversations`} of turns`;
  return workload === 'sharegpt' ? `${count} as in ShareGPT` : `${count} at once`;
}

function figure(label: string, values: Comparison = {}): ComparedFigure[] {
  if (!('kvasir' in values && 'libllama' in values && 'ratio' in values)) return [];
  const { kvasir: ours = 0, libllama: theirs = 0, ratio = 0 } = values;
  return [{ label, ours, theirs, ratio }];
}
