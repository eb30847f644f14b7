import { readFile } from 'node:fs/promises';
import { fileUnreadable, textNotUtf8 } from './cli-errors.ts';

/** The text of a flag: as it stands, of a file (`@path`), or of standard input (`-`). */
export async function readTextFlag(what: string, value: string, readStdin: () => Promise<Uint8Array>): Promise<string> {
  if (value === '-') return withoutLastNewline(decode(what, 'standard input', await readStdin()));
  if (value.startsWith('@')) return withoutLastNewline(await readTextFile(what, value.slice(1)));
  return value;
}

export async function readTextFile(what: string, path: string): Promise<string> {
  let bytes: Uint8Array;
  try {
    bytes = await readFile(path);
  } catch (error) {
    throw fileUnreadable({ what, path, reason: (error as NodeJS.ErrnoException).code ?? 'unknown' }, error);
  }
  return decode(what, path, bytes);
}

function decode(what: string, path: string, bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch (error) {
    throw textNotUtf8({ what, path }, error);
  }
}

/** Editors and `echo` put it there; nobody means it as part of a prompt. */
function withoutLastNewline(text: string): string {
  return text.replace(/\r?\n$/, '');
}
