import { type ComparedFigure, comparedFigures, type ResultsFile } from './results-file.ts';

const width = 898;
const labelWidth = 300;
/** Space for the figures right of the longest bar. */
const valueWidth = 150;
const barHeight = 13;
const groupGap = 11;
const top = 88;
/** From the middle of a bar to the baseline of its text, because renderers differ in `dominant-baseline`. */
const textDrop = 4;
/** Colours on white and on black, reused if there are more types of weights. */
const colours = [
  ['#2f6fc9', '#5f9bf0'],
  ['#2a9d8f', '#4cc4b5'],
  ['#b3772e', '#dba45a'],
  ['#7d5ba6', '#a98ad0'],
] as const;

/**
 * A group of bars for each measured quantity, with a bar for each type of weights. A bar is the speed of Kvasir as a
 * multiple of libllama's, which is the line at 1. Both figures are right of the bar. Readable on white and on black.
 */
export function plotSvg(results: ResultsFile): string {
  const figures = comparedFigures(results);
  const groups = grouped(figures);
  const weights = [...new Set(figures.map((figure) => figure.weights))];
  const most = Math.max(1, ...figures.map(({ ratio }) => ratio));
  const scale = (width - labelWidth - valueWidth) / most;
  const heightOf = (group: readonly unknown[]): number => group.length * barHeight + groupGap;
  const bottom = top + groups.reduce((sum, [, group]) => sum + heightOf(group), 0);
  let y = top + groupGap / 2;
  const rows: string[] = [];
  for (const [what, group] of groups) {
    const middle = y + (group.length * barHeight) / 2 + textDrop;
    rows.push(`<text class="label" x="${labelWidth - 10}" y="${fixed(middle)}">${escaped(what)}</text>`);
    group.forEach((figure, i) => {
      rows.push(...barOf(figure, weights.indexOf(figure.weights), y + i * barHeight, scale));
    });
    y += heightOf(group);
  }
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${bottom + 14}" role="img">
<title>Speed of Kvasir relative to libllama, ${escaped(results.date)}</title>
<style>
text { font: 12.5px sans-serif; fill: #222; }
.label { text-anchor: end; }
.head { font-size: 15px; font-weight: bold; }
.figures, .grid { font-size: 11px; fill: #666; }
.axis { text-anchor: middle; }
line { stroke: #ddd; }
.one { stroke: #d0342c; stroke-width: 2; }
.peer { fill: #d0342c; font-weight: bold; }
${weights.map((_, i) => `.w${i} { fill: ${colourOf(i)[0]}; }`).join('\n')}
@media (prefers-color-scheme: dark) {
text { fill: #ddd; } .figures, .grid { fill: #999; } line { stroke: #3a3f46; }
.one { stroke: #ff6b61; } .peer { fill: #ff6b61; }
${weights.map((_, i) => `.w${i} { fill: ${colourOf(i)[1]}; }`).join('\n')}
}
</style>
<text class="head" x="${labelWidth}" y="18">Kvasir's speed as a multiple of libllama's; longer is better</text>
${legend(weights)}
${gridLines(most, scale, bottom)}
${rows.join('\n')}
${axisLine('one', labelWidth + scale, bottom)}
</svg>
`;
}

/** Groups figures by the measured quantity, in the order of the file. */
function grouped(figures: readonly ComparedFigure[]): [string, ComparedFigure[]][] {
  const groups = new Map<string, ComparedFigure[]>();
  for (const figure of figures) groups.set(figure.what, [...(groups.get(figure.what) ?? []), figure]);
  return [...groups];
}

function barOf({ ours, theirs, ratio }: ComparedFigure, weights: number, y: number, scale: number): string[] {
  const x = labelWidth + valueAt(ratio) * scale + 6;
  const size = `width="${fixed(ratio * scale)}" height="${barHeight - 2}"`;
  const figures = `<tspan class="figures" dx="7">${rate(ours)} : ${rate(theirs)} tok/s</tspan>`;
  return [
    `<rect class="w${weights}" x="${labelWidth}" y="${fixed(y + 1)}" ${size}/>`,
    `<text x="${fixed(x)}" y="${fixed(y + barHeight / 2 + textDrop)}">${ratio.toFixed(2)}${figures}</text>`,
  ];
}

function legend(weights: readonly string[]): string {
  let x = labelWidth;
  const entries = weights.map((name, i) => {
    const entry = `<rect class="w${i}" x="${x}" y="33" width="11" height="11"/>\n<text x="${x + 16}" y="43">${escaped(name)}</text>`;
    x += 34 + 8 * name.length;
    return entry;
  });
  return [...entries, `<text class="figures" x="${x}" y="43">right of each bar: Kvasir : libllama</text>`].join('\n');
}

/** A line at each whole multiple; the line at 1 is the peer. */
function gridLines(most: number, scale: number, bottom: number): string {
  const multiples = Array.from({ length: Math.floor(most) }, (_, i) => i + 1);
  return multiples
    .map((multiple) => {
      const x = labelWidth + multiple * scale;
      const [name, text] = multiple === 1 ? ['axis peer', 'libllama = 1'] : ['axis grid', `${multiple}`];
      const label = `<text class="${name}" x="${fixed(x)}" y="${top - 14}">${text}</text>`;
      return multiple === 1 ? label : `${label}\n${axisLine('grid', x, bottom)}`;
    })
    .join('\n');
}

const axisLine = (name: string, x: number, bottom: number): string =>
  `<line class="${name}" x1="${fixed(x)}" y1="${top - 8}" x2="${fixed(x)}" y2="${fixed(bottom + 4)}"/>`;

/** The text of a bar that ends near the line at 1 is moved to the right of the line. */
const valueAt = (ratio: number): number => (ratio < 1 && ratio > 0.85 ? 1 : ratio);

const colourOf = (weights: number): readonly [string, string] => colours[weights % colours.length]!;

const rate = (value: number): string => value.toFixed(value < 100 ? 1 : 0);

const fixed = (value: number): string => String(Number(value.toFixed(1)));

const escaped = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');
