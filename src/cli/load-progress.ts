import { basename } from 'node:path';
import type { LoadProgress } from '../engine/options.ts';
import type { TextSink } from './context.ts';

/** Smaller files are there before a bar could be read. */
const BYTES_WORTH_A_BAR = 64 * 1024 * 1024;
const BAR_WIDTH = 30;

/**
 * Shows how far a large model is loaded: a bar that draws over itself where a person looks on, a line at each quarter
 * where the output goes to a file.
 */
export function loadProgress(model: string, out: TextSink): LoadProgress {
  const name = basename(model);
  let shownPercent = Number.NEGATIVE_INFINITY;
  return (loadedBytes, totalBytes) => {
    if (totalBytes < BYTES_WORTH_A_BAR) return;
    const percent = Math.floor((100 * loadedBytes) / totalBytes);
    const step = out.isTTY === true ? 1 : 25;
    if (percent < shownPercent + step && loadedBytes < totalBytes) return;
    if (percent === shownPercent) return;
    shownPercent = percent - (percent % step);
    const amount = `${gibibytes(loadedBytes)} of ${gibibytes(totalBytes)} GiB`;
    if (out.isTTY !== true) {
      out.write(`loading ${name}: ${percent} % (${amount})\n`);
      return;
    }
    const filled = Math.round((BAR_WIDTH * loadedBytes) / totalBytes);
    const bar = '='.repeat(filled).padEnd(BAR_WIDTH);
    out.write(`\rloading ${name} [${bar}] ${String(percent).padStart(3)} % ${amount}${percent === 100 ? '\n' : ''}`);
  };
}

function gibibytes(bytes: number): string {
  return (bytes / 1024 ** 3).toFixed(2);
}
