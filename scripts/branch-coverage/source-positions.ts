import { readFileSync } from 'node:fs';
import { SourceMap } from 'node:module';
import { dirname, relative, resolve } from 'node:path';

export interface SourcePosition {
  /** Relative to the working directory. */
  readonly file: string;
  readonly line: number;
}

/** Where a place of the compiler's output is in its source: by the source map beside `path`. */
export function sourcePositions(path: string, code: string): (offset: number) => SourcePosition {
  const map = new SourceMap(JSON.parse(readFileSync(`${path}.map`, 'utf8')));
  return (offset) => {
    const before = code.slice(0, offset).split('\n');
    const entry = map.findEntry(before.length - 1, before[before.length - 1]!.length);
    if (!('originalSource' in entry)) return { file: relative(process.cwd(), path), line: before.length };
    const source = resolve(dirname(path), entry.originalSource);
    return { file: relative(process.cwd(), source), line: entry.originalLine + 1 };
  };
}
