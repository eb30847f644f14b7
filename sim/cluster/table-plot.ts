import type { ClusterRow } from './cluster-table.ts';

const size = { width: 720, height: 340, left: 60, right: 130, top: 44, bottom: 46 };
/** Colours on white and on black, one for each number of servers; reused if there are more. */
const colours = [
  ['#2f6fc9', '#5f9bf0'],
  ['#2a9d8f', '#4cc4b5'],
  ['#b3772e', '#dba45a'],
  ['#7d5ba6', '#a98ad0'],
] as const;

/**
 * A line for each number of servers: the p99 of the time to the first token by the tier's bandwidth. The bandwidths are at equal distances, in their
 * order. Readable on white and on black.
 */
export function tablePlot(rows: readonly ClusterRow[]): string {
  const servers = [...new Set(rows.map(({ replicas }) => replicas))];
  const gigabits = [...new Set(rows.map(({ tierGigabits }) => tierGigabits))].toSorted((a, b) => a - b);
  const most = Math.ceil(Math.max(1000, ...rows.map(({ firstTokenP99Ms }) => firstTokenP99Ms)) / 1000);
  const [plotWidth, plotHeight] = [size.width - size.left - size.right, size.height - size.top - size.bottom];
  const x = (value: number): number =>
    size.left + (plotWidth * gigabits.indexOf(value)) / Math.max(gigabits.length - 1, 1);
  const y = (seconds: number): number => size.top + plotHeight * (1 - seconds / most);
  const grid = Array.from({ length: most + 1 }, (_, seconds) => [
    `<line x1="${size.left}" y1="${fixed(y(seconds))}" x2="${size.width - size.right}" y2="${fixed(y(seconds))}"/>`,
    `<text class="axis" text-anchor="end" x="${size.left - 8}" y="${fixed(y(seconds) + 4)}">${seconds} s</text>`,
  ]).flat();
  const labels = gigabits.map(
    (value) =>
      `<text class="axis" text-anchor="middle" x="${fixed(x(value))}" y="${size.height - size.bottom + 18}">${value === 0 ? 'none' : value}</text>`,
  );
  const lines = servers.flatMap((count, i) => {
    const points = rows
      .filter(({ replicas }) => replicas === count)
      .toSorted((a, b) => a.tierGigabits - b.tierGigabits)
      .map((row) => [fixed(x(row.tierGigabits)), fixed(y(row.firstTokenP99Ms / 1000))] as const);
    const colour = i % colours.length;
    const legendY = size.top + 8 + 20 * i;
    const legendX = size.width - size.right + 18;
    return [
      `<polyline class="c${colour}" points="${points.map((point) => point.join(',')).join(' ')}"/>`,
      ...points.map(([cx, cy]) => `<circle class="c${colour}" cx="${cx}" cy="${cy}" r="3.5"/>`),
      `<circle class="c${colour}" cx="${legendX}" cy="${legendY}" r="3.5"/>`,
      `<text x="${legendX + 10}" y="${legendY + 4}">${count} ${count === 1 ? 'server' : 'servers'}</text>`,
    ];
  });
  const style = (dark: 0 | 1): string =>
    colours.map((pair, i) => `.c${i} { stroke: ${pair[dark]}; } circle.c${i} { fill: ${pair[dark]}; }`).join('\n');
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${size.width} ${size.height}" role="img">
<title>Time to the first token by the bandwidth of the shared tier</title>
<style>
text { font: 12.5px sans-serif; fill: #222; }
.head { font-size: 15px; font-weight: bold; }
.axis { font-size: 11px; fill: #666; }
line { stroke: #ddd; }
polyline { fill: none; stroke-width: 2; }
${style(0)}
@media (prefers-color-scheme: dark) {
text { fill: #ddd; } .axis { fill: #999; } line { stroke: #3a3f46; }
${style(1)}
}
</style>
<text class="head" x="${size.left}" y="20">p99 of the time to the first token, by the tier's bandwidth in Gbit/s</text>
${[...grid, ...labels, ...lines].join('\n')}
</svg>
`;
}

const fixed = (value: number): string => String(Number(value.toFixed(1)));
