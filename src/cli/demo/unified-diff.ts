/** The output of `diff -u`: the expected lines, the actual lines, and some lines around each difference. */
export function unifiedDiff(
  before: { readonly name: string; readonly text: string },
  after: { readonly name: string; readonly text: string },
  context = 3,
): string {
  const lines = editScript(linesOf(before.text), linesOf(after.text));
  const out = [`--- ${before.name}`, `+++ ${after.name}`];
  for (const { start, end } of hunksOf(lines, context)) {
    const hunk = lines.slice(start, end);
    const before0 = lines.slice(0, start);
    out.push(`@@ -${rangeOf(before0, hunk, '+')} +${rangeOf(before0, hunk, '-')} @@`);
    for (const { sign, text } of hunk) out.push(`${sign}${text}`);
  }
  return `${out.join('\n')}\n`;
}

interface Line {
  readonly sign: ' ' | '-' | '+';
  readonly text: string;
}

const widthMax = 72;

/** Generated text has few newlines, so long lines are split between words: then a difference is one short line. */
function linesOf(text: string): string[] {
  return text.split('\n').flatMap((line) => line.match(new RegExp(`.{1,${widthMax}}(?:\\s|$)|\\S+`, 'g')) ?? ['']);
}

/** Uses the longest common subsequence: quadratic, which is fast enough for short completions. */
function editScript(a: readonly string[], b: readonly string[]): Line[] {
  const common = Array.from({ length: a.length + 1 }, () => new Int32Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      common[i]![j] = a[i] === b[j] ? common[i + 1]![j + 1]! + 1 : Math.max(common[i + 1]![j]!, common[i]![j + 1]!);
    }
  }
  const lines: Line[] = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push({ sign: ' ', text: a[i]! });
      i++;
      j++;
    } else if (i < a.length && (j === b.length || common[i + 1]![j]! >= common[i]![j + 1]!)) {
      lines.push({ sign: '-', text: a[i++]! });
    } else lines.push({ sign: '+', text: b[j++]! });
  }
  return lines;
}

/** Ranges of the script with differences and their context; adjacent ranges are joined. */
function hunksOf(lines: readonly Line[], context: number): { start: number; end: number }[] {
  const hunks: { start: number; end: number }[] = [];
  for (const [index, { sign }] of lines.entries()) {
    if (sign === ' ') continue;
    const start = Math.max(0, index - context);
    const end = Math.min(lines.length, index + context + 1);
    const last = hunks.at(-1);
    if (last !== undefined && start <= last.end) last.end = end;
    else hunks.push({ start, end });
  }
  return hunks;
}

/** `<first line>,<lines>` of one side. Lines that only the other side has do not count. */
function rangeOf(before: readonly Line[], hunk: readonly Line[], other: '-' | '+'): string {
  const count = (lines: readonly Line[]): number => lines.filter(({ sign }) => sign !== other).length;
  return `${count(before) + 1},${count(hunk)}`;
}
