import { basename } from 'node:path';
import { oneLine } from '../base/shown-text.ts';
import type { LoadProgress } from '../engine/options.ts';
import type { TextSink } from './context.ts';

/** Smaller files are loaded before a user could read a bar. */
const BYTES_WORTH_A_BAR = 64 * 1024 * 1024;
const BAR_WIDTH = 30;
/** Erases what a longer line left behind. */
const CLEAR_REST = '\u001b[K';

/** The progress callbacks of an engine's options. */
export interface OpeningProgress {
  readonly onProgress: LoadProgress;
  readonly onDigestProgress: LoadProgress;
}

/**
 * Shows the progress of loading a large model, and of hashing it if its digest is not known. On a terminal: a bar that is
 * overwritten. In a file: a line at each quarter. While the model is loaded and hashed, only loading is shown.
 */
export function loadProgress(model: string, out: TextSink): OpeningProgress {
  const name = basename(model);
  const load = progressOf(`loading ${name}`, out);
  const hash = progressOf(`hashing ${name}`, out);
  let isLoading = false;
  return {
    onProgress: (loadedBytes, totalBytes) => {
      isLoading = loadedBytes < totalBytes;
      load(loadedBytes, totalBytes);
    },
    onDigestProgress: (hashedBytes, totalBytes) => {
      if (!isLoading) hash(hashedBytes, totalBytes);
    },
  };
}

/** Shows the progress of a download with its speed, in the same form. */
export function downloadProgress(
  model: string,
  out: TextSink,
  nowMs: () => number = () => performance.now(),
): LoadProgress {
  let start: { readonly ms: number; readonly bytes: number } | undefined;
  const speed = (doneBytes: number, totalBytes: number): string => {
    start ??= { ms: nowMs(), bytes: doneBytes };
    const bytesPerSecond = (1000 * (doneBytes - start.bytes)) / (nowMs() - start.ms);
    if (!(bytesPerSecond > 0)) return '';
    const left = doneBytes < totalBytes ? `, ${durationOf((totalBytes - doneBytes) / bytesPerSecond)} left` : '';
    return `, ${(bytesPerSecond / 1e6).toFixed(1)} MB/s${left}`;
  };
  return progressOf(`downloading ${model}`, out, speed);
}

const durationOf = (seconds: number): string =>
  seconds < 90
    ? `${Math.ceil(seconds)} s`
    : seconds < 5400
      ? `${Math.ceil(seconds / 60)} min`
      : `${Math.ceil(seconds / 3600)} h`;

function progressOf(
  what: string,
  out: TextSink,
  more: (doneBytes: number, totalBytes: number) => string = () => '',
): LoadProgress {
  const label = oneLine(what);
  let shownPercent = Number.NEGATIVE_INFINITY;
  return (doneBytes, totalBytes) => {
    if (totalBytes < BYTES_WORTH_A_BAR) return;
    const percent = Math.floor((100 * doneBytes) / totalBytes);
    const step = out.isTTY === true ? 1 : 25;
    if (percent < shownPercent + step && doneBytes < totalBytes) return;
    if (percent === shownPercent) return;
    shownPercent = percent - (percent % step);
    const rest = more(doneBytes, totalBytes);
    const amount = `${gibibytes(doneBytes)} of ${gibibytes(totalBytes)} GiB${rest}`;
    if (out.isTTY !== true) {
      out.write(`${label}: ${percent} % (${amount})\n`);
      return;
    }
    const filled = Math.round((BAR_WIDTH * doneBytes) / totalBytes);
    const bar = '='.repeat(filled).padEnd(BAR_WIDTH);
    const line = `\r${label} [${bar}] ${String(percent).padStart(3)} % ${amount}${rest === '' ? '' : CLEAR_REST}`;
    out.write(percent === 100 ? `${line}\n` : line);
  };
}

function gibibytes(bytes: number): string {
  return (bytes / 1024 ** 3).toFixed(2);
}
