/** A file in `bench/results/`: a dated run of benches, with the machine and the versions. */
export interface ResultsFile {
  readonly date: string;
  readonly machine: string;
  readonly versions: Readonly<Record<string, string>>;
  readonly commit: string;
  readonly models: string;
  readonly runs: readonly ResultsRun[];
}

export interface ResultsRun {
  /** As typed, without folders. */
  readonly command: string;
  /** Present if it differs from the commit of the file. */
  readonly commit?: string;
  /** The load average of one minute before the first run of the command line. In newer files. */
  readonly loadBefore?: number;
  /** The duration of the run. In newer files. */
  readonly seconds?: number;
  /** The JSON rows of the bench. */
  readonly rows: readonly ResultsRow[];
}

/** The fields that are compared with a peer; benches write further fields. */
export interface ResultsRow {
  readonly depth?: number;
  readonly batch?: number;
  readonly prefill?: Comparison;
  readonly decode?: Comparison;
  readonly workload?: string;
  readonly requests?: number;
  readonly prefixLength?: number;
  readonly throughput?: Comparison;
}
export type Comparison = Readonly<Record<string, number>>;

/**
 * Adds a run to a file: it replaces an earlier run of the same command, or comes at the end. The file keeps its date and
 * its commit; a run at another commit names that commit.
 */
export function withRun(file: ResultsFile, commit: string, run: ResultsRun): ResultsFile {
  const marked = commit === file.commit ? run : { ...run, commit };
  const isKnown = file.runs.some(({ command }) => command === run.command);
  const replaced = file.runs.map((each) => (each.command === run.command ? marked : each));
  return { ...file, runs: isKnown ? replaced : [...file.runs, marked] };
}

/** The last of `2026-11-20.json`, `2026-11-20-2.json`, ... by date, then by number. */
export function newestResults(names: readonly string[]): string | undefined {
  const dated = names.flatMap((name) => {
    const match = /^(\d{4}-\d\d-\d\d)(?:-(\d+))?\.json$/.exec(name);
    return match === null ? [] : [{ name, date: match[1] ?? '', number: Number(match[2] ?? 1) }];
  });
  dated.sort((a, b) => (a.date === b.date ? a.number - b.number : a.date < b.date ? -1 : 1));
  return dated.at(-1)?.name;
}

/** One figure and the same figure of libllama. */
export interface ComparedFigure {
  /** The measured quantity, and the type of weights; `label` has both. */
  readonly what: string;
  readonly weights: string;
  readonly label: string;
  readonly ours: number;
  readonly theirs: number;
  readonly ratio: number;
}

/** All figures with exact numerics that have a figure of libllama, in the order of the file. */
export function comparedFigures({ runs }: ResultsFile): ComparedFigure[] {
  return runs
    .filter(({ command }) => !command.includes('--numerics fast'))
    .flatMap(({ command, rows }) => rows.flatMap((row) => figuresOf(row, command)));
}

function figuresOf(row: ResultsRow, command: string): ComparedFigure[] {
  const weights = /--model (\S+)\.gguf/.exec(command)?.[1] ?? 'the demo model';
  const promptLength = /--prompt-len (\d+)/.exec(command)?.[1] ?? '512';
  const context = row.depth === undefined || row.depth === 0 ? '' : ` after a context of ${row.depth} tokens`;
  const decode = row.batch === undefined || row.batch === 1 ? 'decode' : `decode of ${row.batch} at once`;
  return [
    ...figure(weights, `prompt of ${promptLength}${context}`, row.prefill),
    ...figure(weights, `${decode}${context}`, row.decode),
    ...figure(weights, workloadLabel(row), row.throughput),
  ];
}

/** Older files have one workload without a name. */
function workloadLabel({ workload = 'shared-prefix', requests = 0, prefixLength = 0 }: ResultsRow): string {
  const count = requests === 1 ? '1 request' : `${requests} requests`;
  if (workload === 'shared-prefix') return `${count} with ${prefixLength} common tokens`;
  if (workload === 'multi-turn') return `${requests === 1 ? '1 conversation' : `${requests} conversations`} of turns`;
  if (workload === 'sharegpt') return `${count} as in ShareGPT`;
  return requests === 1 ? '1 request, prompt and answer' : `${count} at once`;
}

function figure(weights: string, what: string, values: Comparison = {}): ComparedFigure[] {
  if (!('kvasir' in values && 'libllama' in values && 'ratio' in values)) return [];
  const { kvasir: ours = 0, libllama: theirs = 0, ratio = 0 } = values;
  return [{ what, weights, label: `${weights}, ${what}`, ours, theirs, ratio }];
}
