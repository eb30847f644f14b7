import { stat } from 'node:fs/promises';
import { FileTooLarge, NotRegularFile, readLimited, readRegular } from '../base/read-limited.ts';
import { isTemplateName } from '../tokenizer/model-templates.ts';
import { fileUnreadable, textNotUtf8 } from './cli-errors.ts';

const fileBytesMax = 64 * 2 ** 20;

/** The text of a flag: the value itself, the content of a file or a pipe (`@path`), or standard input (`-`). */
export async function readTextFlag(what: string, value: string, readStdin: () => Promise<Uint8Array>): Promise<string> {
  if (value === '-') return withoutLastNewline(decode(what, 'standard input', await readStdin()));
  if (value.startsWith('@')) return withoutLastNewline(await readText(what, value.slice(1), readLimited));
  return value;
}

/** The text of a regular file: others are refused at once. */
export const readTextFile = (what: string, path: string): Promise<string> => readText(what, path, readRegular);

async function readText(what: string, path: string, read: typeof readRegular): Promise<string> {
  let bytes: Uint8Array;
  try {
    bytes = await read(path, fileBytesMax);
  } catch (error) {
    throw fileUnreadable({ what, path, reason: reasonOf(error as NodeJS.ErrnoException) }, error);
  }
  return decode(what, path, bytes);
}

/** The value of `--chat-template`: the content of a file, or the name of a template if there is no such file. */
export async function readChatTemplate(value: string): Promise<string> {
  const isFile = await stat(value).then(
    (found) => !found.isDirectory(),
    () => false,
  );
  return isTemplateName(value) && !isFile ? value : readTextFile('chat template', value);
}

function reasonOf(error: NodeJS.ErrnoException): string {
  if (error instanceof FileTooLarge) return `it has more than ${fileBytesMax} bytes`;
  if (error instanceof NotRegularFile || error.code === 'EISDIR') return 'it is not a regular file';
  return error.code === 'ENOENT' ? 'there is no such file' : (error.code ?? error.message);
}

function decode(what: string, path: string, bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch (error) {
    throw textNotUtf8({ what, path }, error);
  }
}

/** Editors and `echo` add a newline at the end, which is not part of the prompt. */
function withoutLastNewline(text: string): string {
  return text.replace(/\r?\n$/, '');
}
