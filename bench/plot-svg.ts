import { comparedFigures, type ResultsFile } from './results-file.ts';

const width = 820;
const labelWidth = 330;
const valueWidth = 60;
const rowHeight = 26;
const barHeight = 16;
const top = 52;

/** Bars of the ratio to libllama, one for each figure, with a line at 1. Readable on white and on black. */
export function plotSvg(results: ResultsFile): string {
  const figures = comparedFigures(results);
  const most = Math.max(1, ...figures.map(({ ratio }) => ratio));
  const scale = (width - labelWidth - valueWidth) / most;
  const bottom = top + figures.length * rowHeight;
  const line = labelWidth + scale;
  const bars = figures.map(({ label, ratio }, i) => {
    const y = top + i * rowHeight;
    const middle = y + rowHeight / 2;
    return [
      `<text class="label" x="${labelWidth - 10}" y="${middle}">${escaped(label)}</text>`,
      `<rect x="${labelWidth}" y="${y + (rowHeight - barHeight) / 2}" width="${fixed(ratio * scale)}" height="${barHeight}"/>`,
      `<text x="${fixed(labelWidth + valueAt(ratio) * scale + 6)}" y="${middle}">${ratio.toFixed(2)}</text>`,
    ].join('\n');
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${bottom + 12}" role="img">
<title>Speed of Kvasir relative to libllama, ${escaped(results.date)}</title>
<style>
text { font: 13px sans-serif; fill: #222; dominant-baseline: central; }
.label { text-anchor: end; }
.head { font-weight: bold; }
rect { fill: #3b7dd8; }
line { stroke: #d0342c; stroke-width: 1.5; stroke-dasharray: 4 3; }
@media (prefers-color-scheme: dark) { text { fill: #ddd; } rect { fill: #5a96e6; } line { stroke: #ff6b61; } }
</style>
<text class="head" x="${labelWidth}" y="14">speed relative to libllama, exact numerics</text>
<text class="head" x="${fixed(line)}" y="36" text-anchor="middle">1</text>
${bars.join('\n')}
<line x1="${fixed(line)}" y1="${top - 8}" x2="${fixed(line)}" y2="${bottom + 4}"/>
</svg>
`;
}

/** A figure that would lie on the line stands behind it. */
const valueAt = (ratio: number): number => (ratio < 1 && ratio > 0.85 ? 1 : ratio);

const fixed = (value: number): string => String(Number(value.toFixed(1)));

const escaped = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');
