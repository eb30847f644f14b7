import { setTimeout as sleep } from 'node:timers/promises';
import { PAUSE_MS } from '../pauses.ts';
import type { MeasuredEngine } from '../subject/engine-subject.ts';

/**
 * The last blocks of a run are offered to the tiers a step after its last token. Also, memory is mapped ahead only after a
 * tenth of a second without work.
 */
const quietReadings = 10;

/** Waits for blocks that are written in the background, so that they do not slow down what is measured next. */
export async function whenWritten({ engine }: MeasuredEngine, signal: AbortSignal): Promise<void> {
  const isWriting = ([name, count]: [string, number]): boolean => name.endsWith('.openStores') && count > 0;
  for (let quiet = 0; quiet < quietReadings; quiet++) {
    if (Object.entries(engine.stats().transfers.counters).some(isWriting)) quiet = 0;
    await sleep(PAUSE_MS, undefined, { signal });
  }
}
