import { isProven, type StageRow } from './report.ts';

const columns = [
  { title: 'stage', width: 26 },
  { title: 'loaded', width: 8 },
  { title: 'failed', width: 8 },
  { title: 'recomputed', width: 12 },
  { title: 'computed', width: 10 },
  { title: 'minimum', width: 9 },
  { title: 'first token', width: 13 },
  { title: 'same KV', width: 9 },
  { title: 'text', width: 8 },
] as const;

/** The table grows line by line while stages run, so its columns have fixed widths. Colours only on a terminal. */
export class StageTable {
  readonly #paint: (code: number, text: string) => string;

  constructor(hasColours: boolean) {
    this.#paint = (code, text) => (hasColours ? `\u001b[${code}m${text}\u001b[0m` : text);
  }

  header(): string {
    const line = columns.map(({ title, width }, i) => pad(title, width, i)).join('');
    const rule = '─'.repeat(columns.reduce((sum, { width }) => sum + width, 0));
    return `${this.#paint(1, line.trimEnd())}\n${this.#paint(2, rule)}\n`;
  }

  row(row: StageRow): string {
    const cells = [
      row.name,
      tokens(row.loaded),
      tokens(row.failed),
      tokens(row.recomputed),
      tokens(row.computed),
      tokens(row.minimum),
      `${row.firstTokenMs.toFixed(0)} ms`,
      row.blocksFailed === 0 ? '-' : `${row.blocksEqual}/${row.blocksFailed}`,
      row.isTextEqual ? 'same' : 'differs',
    ];
    const line = columns.map(({ width }, i) => pad(cells[i] ?? '', width, i));
    const last = this.#paint(row.isTextEqual ? 32 : 31, line.pop() ?? '');
    return `${line.join('')}${last}${isProven(row) ? '' : this.#paint(31, '  !')}\n${this.#groups(row)}`;
  }

  /** For a model with several KV groups, a line for each group that lost blocks. */
  #groups({ groups }: StageRow): string {
    if (groups.length === 1) return '';
    const lines = groups.flatMap(({ kind, window, lost, recomputed }, group) => {
      if (lost === 0) return [];
      const name = { full: 'full attention', window: `window of ${window}`, state: 'recurrent states' }[kind];
      return [`  group ${group}, ${name}: ${lost} tokens lost, ${recomputed} recomputed with the same KV\n`];
    });
    return this.#paint(2, lines.join(''));
  }

  legend(): string {
    return this.#paint(
      2,
      'Tokens, over four prompts. minimum: smallest number of tokens to compute; a naive reference counts it from the\n' +
        'stored blocks and the failed blocks. same KV: failed blocks whose recomputed bytes have the CRC32 of the\n' +
        'original bytes. text: tokens and logprobs are compared too.\n',
    );
  }

  verdict(text: string, isGood: boolean): string {
    return `${this.#paint(isGood ? 32 : 31, text)}\n`;
  }
}

const tokens = (count: number): string => (count === 0 ? '-' : String(count));
const pad = (text: string, width: number, column: number): string =>
  column === 0 ? text.padEnd(width) : text.padStart(width);
