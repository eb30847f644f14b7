import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import { KvasirError } from '../base/errors.ts';
import type { MacKeys } from './connector.ts';
import { keyFileInvalid } from './errors.ts';
import { keyBytesMin, keyIdOf } from './tier/block-mac.ts';

export interface KeyFile {
  readonly keys: MacKeys;
  /** For the operator: who else can read or change the file. */
  readonly warning: string | undefined;
}

const fileBytesMax = 64 * 1024;
const keysMax = 16;
/** 32 random bytes with fewer different values are rarer than one in 10^30. */
const differentBytesMin = 12;
const keyPattern = /^(?:[0-9a-fA-F]{2})+$/;

/**
 * Reads the file of `--kv-transfer-key-file`: a key in each line, as hexadecimal digits. Empty lines and lines that begin with
 * `#` are skipped. Errors never have a part of a key.
 * @throws KvasirError `keyFileInvalid`
 */
export function readKeyFile(path: string): KeyFile {
  const invalid = (reason: string, cause?: unknown) => keyFileInvalid({ path, reason }, cause);
  let text: string;
  let mode: number;
  try {
    // A FIFO must not block the start.
    const file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const stats = fstatSync(file);
      if (!stats.isFile()) throw invalid('it is not a regular file');
      if (stats.size > fileBytesMax) throw invalid(`it has ${stats.size} bytes, more than ${fileBytesMax}`);
      mode = stats.mode;
      text = textOf(file, stats.size);
    } finally {
      closeSync(file);
    }
  } catch (error) {
    throw error instanceof KvasirError ? error : invalid((error as Error).message, error);
  }
  return { keys: keysIn(text, invalid), warning: warningOf(path, mode) };
}

function keysIn(text: string, invalid: (reason: string) => Error): Uint8Array[] {
  const keys: Uint8Array[] = [];
  const ids = new Set<number>();
  for (const [index, whole] of text.split('\n').entries()) {
    const line = whole.trim();
    if (line === '' || line.startsWith('#')) continue;
    const where = `line ${index + 1}`;
    if (!keyPattern.test(line)) throw invalid(`${where} is not an even number of hexadecimal digits`);
    const key = new Uint8Array(Buffer.from(line, 'hex'));
    if (key.length < keyBytesMin) throw invalid(`the key in ${where} has ${key.length} bytes`);
    if (new Set(key).size < differentBytesMin) throw invalid(`the key in ${where} is not random`);
    const id = keyIdOf(key);
    if (ids.has(id)) throw invalid(`the key in ${where} is there twice`);
    ids.add(id);
    keys.push(key);
  }
  if (keys.length === 0) throw invalid('it has no key');
  if (keys.length > keysMax) throw invalid(`it has ${keys.length} keys, more than ${keysMax}`);
  return keys;
}

function textOf(file: number, size: number): string {
  const bytes = Buffer.alloc(size);
  let length = 0;
  while (length < size) {
    const count = readSync(file, bytes, length, size - length, null);
    if (count === 0) break;
    length += count;
  }
  return bytes.toString('latin1', 0, length);
}

/** A group may read it, as with secrets of Kubernetes. Windows has no such modes. */
function warningOf(path: string, mode: number): string | undefined {
  if (process.platform === 'win32') return undefined;
  const octal = (mode & 0o777).toString(8).padStart(3, '0');
  const remedy = `Who has a key can write blocks that this server loads. Run: chmod 600 ${path}`;
  if ((mode & 0o022) !== 0) return `Others can change the key file ${path} (mode ${octal}). ${remedy}`;
  if ((mode & 0o004) !== 0) return `Others can read the key file ${path} (mode ${octal}). ${remedy}`;
  return undefined;
}
