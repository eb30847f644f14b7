import { formatTable } from '../../../src/base/table.ts';
import type { PeerRow } from './outcomes.ts';
import { peerFaultsOf } from './peer-faults.ts';

/** A row for each fault, a column for each program. Of equal faults and programs, the last row counts. */
export function peerTable(rows: readonly PeerRow[]): string[][] {
  const subjects = [...new Set(rows.map(({ subject }) => subject))];
  const faults = [...new Set(rows.map(({ fault }) => fault))].sort((a, b) => placeOf(a) - placeOf(b));
  const cell = (fault: string, subject: string): string => {
    const row = rows.findLast((one) => one.fault === fault && one.subject === subject);
    return row === undefined ? '' : described(row);
  };
  return [
    ['fault', ...subjects],
    ...faults.map((fault) => [fault, ...subjects.map((subject) => cell(fault, subject))]),
  ];
}

/** In the order in which a run has the faults. */
const names = peerFaultsOf(0, 0).map(({ name }) => withoutTime(name));
const placeOf = (fault: string): number => names.indexOf(withoutTime(fault));

function withoutTime(fault: string): string {
  return fault.replace(/ \(\d+ ms\)$/, '');
}

export const peerMarkdown = (rows: readonly PeerRow[]): string => {
  const [header = [], ...lines] = peerTable(rows);
  const line = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`;
  return [line(header), line(header.map(() => '---')), ...lines.map(line)].join('\n');
};

export function peerText(rows: readonly PeerRow[]): string {
  const [header = [], ...lines] = peerTable(rows);
  return formatTable(header, lines);
}

function described({ equal, wrong, failed, refused, hasEnded, logprobsApart }: PeerRow): string {
  const counts = [
    hasEnded ? 'the program ends' : '',
    equal > 0 ? `${equal} equal` : '',
    refused > 0 ? `${refused} of them refused and computed` : '',
    wrong > 0 ? `**${wrong} wrong**` : '',
    failed > 0 ? `${failed} ${hasEnded ? 'without an answer' : failed === 1 ? 'error' : 'errors'}` : '',
  ];
  const apart = logprobsApart === 0 ? '' : `logprobs up to ${Number(logprobsApart.toPrecision(2))} apart`;
  return [...counts, apart].filter((part) => part !== '').join(', ');
}
