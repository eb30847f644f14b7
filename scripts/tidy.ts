/** Rules of this repository that neither the compiler nor the linter checks. Each violation names its rule. */
import { readFileSync } from 'node:fs';
import { basename, join, relative } from 'node:path';
import { sourceFiles, type Violation } from './layers.ts';

const linesMax = 500;

/** Texts that files must not contain, by rule. The brackets keep this file from breaking its own rules. */
const forbidden: readonly (readonly [rule: string, pattern: RegExp])[] = [
  ['finish the work or file an issue: no notes in the code', /\b(TOD[O]|FIXM[E]|XX[X]|HAC[K])\b/],
  [
    'every test runs, or names what it needs (test/support/needs.ts)',
    /\b(it|test|describe)\.(ski[p]|onl[y]|tod[o]|skipI[f]|runI[f])\b/,
  ],
  ['disable the linter only with a reason', /biome-ignore(-all)?\s+\S+\s*:?\s*$/],
  ['no paths of a single machine', /["'`](\/(work|root|home|Users)\/)/],
];

const testFile = /\.(test|fuzz|suite|gpu)\.ts$/;
const skips = /\b(ctx|task|context)\.ski[p]\(|\bski[p]: /;

/** Programs get paths from users. Tests make folders in their temporary folder only. */
const ofProgram = /^(src|bench)\/(?!.*\.(test|fuzz|suite|bench)\.ts$)/;
const recursiveMkdir = /\bmkdir(Sync)?\([^;]*?\brecursive: true/;

/** Names from outside reach the prototype of a plain object. The functions of native libraries are called too often for `byName`. */
const plainTable = /: (Readonly<)?Record<string, [^=]*> = \{/;
/** Fields that are spread into another object are no table. */
const plainEntries = /(?<!\.\.\.\(?)\bObject\.fromEntries\(/;
const isPlainTable = (file: string, line: string): boolean =>
  (plainTable.test(line) || (plainEntries.test(line) && !/^src\/(base\/by-name\.ts$|server\/page\/)/.test(file))) &&
  file.startsWith('src/') &&
  ofProgram.test(file) &&
  file !== 'src/ggml/ffi.ts';

const typesGivenUp =
  /([\w)\]?]:\s*an[y](\[\])*\s*[;,)=>|{]|\bas an[y]\b(?=\s*[);,.\]}=]|\s*$)|<an[y]>|@ts-(ignor[e]|expect-erro[r]|nochec[k]))/;
/** Comments may contain what code may not. */
const withoutComment = (line: string): string => line.replace(/^\s*(\/?\*|\/\/).*|\s\/\/.*$|\/\*.*?\*\//g, '');

export function checkTidiness(root: string): Violation[] {
  const violations: Violation[] = [];
  for (const folder of ['src', 'sim', 'bench', 'scripts', 'test', 'examples']) {
    for (const file of existingSources(join(root, folder))) {
      const report = (rule: string): number => violations.push({ file: relative(root, file), imported: '', rule });
      const text = readFileSync(file, 'utf8');
      const lines = text.split('\n');
      if (lines.length > linesMax) report(`one idea per file: ${lines.length} lines, at most ${linesMax}`);
      if (!/^[a-z0-9]+(-[a-z0-9]+)*(\.(test|fuzz|suite|bench|gpu|d))?\.ts$/.test(basename(file)))
        report('names are kebab-case');
      if (/^(utils?|helpers?|misc|common)\b/.test(basename(file)))
        report('the file name must say what the file contains');
      if (ofProgram.test(relative(root, file)) && recursiveMkdir.test(text))
        report('use `makeFolders`: the recursive mkdir of Node never ends for some paths');
      for (const [index, line] of lines.entries()) {
        for (const [rule, pattern] of forbidden) if (pattern.test(line)) report(`line ${index + 1}: ${rule}`);
        if (testFile.test(file) && skips.test(line))
          report(`line ${index + 1}: only test/support/needs.ts skips tests`);
        if (isPlainTable(relative(root, file), line))
          report(`line ${index + 1}: a table by name is made by \`byName\` or \`byEntries\``);
        if (typesGivenUp.test(withoutComment(line))) report(`line ${index + 1}: no escape from the type checker`);
      }
    }
  }
  for (const file of sourceFiles(join(root, 'src'), ['.c', '.h'])) {
    const count = readFileSync(file, 'utf8').split('\n').length;
    if (count > linesMax) {
      const rule = `one idea per file: ${count} lines, at most ${linesMax}`;
      violations.push({ file: relative(root, file), imported: '', rule });
    }
  }
  return violations;
}

function existingSources(folder: string): string[] {
  try {
    return sourceFiles(folder);
  } catch {
    return [];
  }
}

if (process.argv[1] !== undefined && /tidy\.[jt]s$/.test(process.argv[1])) {
  const violations = checkTidiness(process.cwd());
  for (const { file, rule } of violations) console.error(`${file}: ${rule}`);
  console.log(`tidy: ${violations.length} violations`);
  process.exitCode = violations.length === 0 ? 0 : 1;
}
