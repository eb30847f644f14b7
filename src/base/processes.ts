import { readdirSync, readFileSync } from 'node:fs';

/** A process of the system. */
export interface ProcessEntry {
  readonly id: number;
  readonly parent: number;
  /** `Z`: it has ended, and its exit code was not read yet. */
  readonly state: string;
  /** CPU time in ticks: its own, and that of its children whose exit codes it has read. */
  readonly ticks: number;
}

/** The processes of the system. Only Linux has them as files; elsewhere there are none. */
export function processes(): ProcessEntry[] {
  try {
    return readdirSync('/proc').flatMap((name) => (/^\d+$/.test(name) ? entryOf(Number(name)) : []));
  } catch {
    return [];
  }
}

/** None if the process has ended meanwhile. */
function entryOf(id: number): ProcessEntry[] {
  try {
    return [parseStat(id, readFileSync(`/proc/${id}/stat`, 'utf8'))];
  } catch {
    return [];
  }
}

/** `7 (name) S 1 ...`: the name can have spaces and parentheses. The fields after it are those from the third on in proc(5). */
export function parseStat(id: number, text: string): ProcessEntry {
  const [state = '', parent, ...rest] = text.slice(text.lastIndexOf(')') + 2).split(' ');
  const ticks = rest.slice(9, 13).reduce((sum, count) => sum + Number(count), 0);
  return { id, parent: Number(parent), state, ticks };
}
