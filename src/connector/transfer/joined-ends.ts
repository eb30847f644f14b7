import type { TransferId, TransferReport } from '../connector.ts';

const kinds = ['finishedSending', 'finishedRecving', 'drained'] as const;
type Ends = Pick<TransferReport, (typeof kinds)[number]>;

/**
 * The ends of transfers of which several worker sides of one rank have parts: a transfer is decided, or drained, when each of these
 * sides has said so. A side that has no part of an open transfer, or has ended it before, cannot end it. Other ids are passed on, and the
 * ledger counts and ignores those that it does not know.
 */
export class JoinedEnds {
  readonly #open: Readonly<Record<keyof Ends, Map<TransferId, Set<number>>>> = {
    finishedSending: new Map(),
    finishedRecving: new Map(),
    drained: new Map(),
  };

  /** `sides`: those that get a part. */
  begin(kind: 'load' | 'save', id: TransferId, sides: readonly number[]): void {
    this.#open[kind === 'load' ? 'finishedRecving' : 'finishedSending'].set(id, new Set(sides));
    this.#open.drained.set(id, new Set(sides));
  }

  /** Whether a side has not decided its part of the load. */
  isLoading(id: TransferId): boolean {
    return this.#open.finishedRecving.has(id);
  }

  /** `reports`: one of each side. */
  ended(reports: readonly Ends[]): Ends {
    const [finishedSending, finishedRecving, drained] = kinds.map((kind) =>
      reports.flatMap((report, side) => report[kind].filter((id) => this.#isLast(kind, id, side))),
    );
    return { finishedSending: finishedSending!, finishedRecving: finishedRecving!, drained: drained! };
  }

  #isLast(kind: keyof Ends, id: TransferId, side: number): boolean {
    const left = this.#open[kind].get(id);
    if (left === undefined) return true;
    if (!left.delete(side) || left.size > 0) return false;
    this.#open[kind].delete(id);
    return true;
  }
}
