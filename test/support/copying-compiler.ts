import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

/**
 * The path of a C compiler that compiles each command once, and otherwise copies the library that it kept in `folder`. For tests
 * that compile the same library many times and do not test the compiler. It optimizes less, as `quick-compiler.ts`.
 */
export function copyingCompiler(folder: string): string {
  const path = join(folder, 'copying-cc');
  const lines = `#!/bin/sh
test "$1" = --version && exec cc --version
work=''
previous=''
for argument; do
  if test "$previous" = -o; then output=$argument; else work="$work $argument"; fi
  previous=$argument
done
kept="${folder}/kept-$(printf %s "$work" | cksum | cut -d ' ' -f 1)"
if ! test -e "$kept"; then
  cc "$@" -O1 || exit
  cp "$output" "$kept.$$"
  exec mv "$kept.$$" "$kept"
fi
exec cp "$kept" "$output"
`;
  writeFileSync(path, lines, { mode: 0o755 });
  return path;
}
