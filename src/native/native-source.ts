import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { assert } from '../base/assert.ts';
import { sourceFile } from '../base/package-files.ts';
import { CompileFailure } from './compile-failure.ts';

/** C that is compiled for a CPU and for the shapes of a model, before (`prebuilt.ts`) or when a model is loaded. */
export interface NativeSource {
  /** The translation unit, by its path below `src`. */
  readonly file: string;
  /**
   * All files that the unit includes, by their paths below `src`: a change of one of them compiles the unit again.
   * `#include` lines have no folder.
   */
  readonly headers: readonly string[];
  readonly definitions: Readonly<Record<string, number>>;
}

/**
 * Flags that decide bits. Without -ffast-math and with contraction off, only the source decides which operations are
 * done in which order.
 */
const flags = ['-O3', '-ffp-contract=off', '-std=gnu11', '-shared', '-fPIC'];

const definitionsOf = ({ definitions }: NativeSource): string[] =>
  Object.entries(definitions).map(([name, value]) => `-D${name}=${value}`);

/** The arguments of the compiler, except those for the CPU, the output and the libraries. */
export function compilerArgumentsOf(source: NativeSource): string[] {
  const root = sourceRoot(source.file);
  return [...flags, ...definitionsOf(source), ...includeFolders(root, source), join(root, source.file)];
}

/** Of the contents of the source and its headers, of its definitions and of the compiler's flags. */
export async function sourceDigestOf(source: NativeSource): Promise<string> {
  const { file, headers } = source;
  const root = sourceRoot(file);
  const names = new Set(headers.map((header) => basename(header)));
  const digest = createHash('sha256');
  for (const part of [file, ...headers]) {
    const content = await readFile(join(root, part), 'utf8').catch((error: Error) => {
      throw new CompileFailure(`${part} cannot be read: ${error.message}`, { isAvoidable: true });
    });
    for (const [, included = ''] of content.matchAll(/^#include "(.+)"/gm)) {
      assert(names.has(included), `${part} includes ${included}, which the headers of ${file} lack`);
    }
    digest.update(content).update('\0');
  }
  for (const part of [...flags, ...definitionsOf(source)]) digest.update(part).update('\0');
  return digest.digest('hex');
}

/** The folder `src`. */
function sourceRoot(file: string): string {
  const root = sourceFile('');
  if (!existsSync(join(root, file))) throw new CompileFailure(`${file} is not in the package`, { isAvoidable: true });
  return root;
}

/** Not part of the digest: KV stays valid if a source moves to another folder. */
const includeFolders = (root: string, { headers }: NativeSource): string[] =>
  [...new Set(headers.map((header) => dirname(header)))].map((folder) => `-I${join(root, folder)}`);
