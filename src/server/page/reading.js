import { call, eventsOf } from './api.js';
import { CacheState, isFinished } from './cache-state.js';
import { followLoad, pathOfModel } from './models.js';

/** Answers to short prompts begin earlier, and need no second request. */
const WAIT_MS = 1000;
/** A browser has six connections to a server. */
let isWatching = false;

/**
 * Tells how far the load of the model is, and then how much of a prompt the model has read, until the signal is aborted. The events of the cache have the requests of all pages with
 * this key, under names that a page cannot know. So the number of tokens is told only while a single request reads its prompt.
 * @param {AbortSignal} signal
 * @param {(text: string) => void} tell
 */
export async function followReading(signal, tell) {
  const path = pathOfModel('cache/events');
  await followLoad(signal, tell);
  tell('The model reads the prompt.');
  await new Promise((resolve) => setTimeout(resolve, WAIT_MS));
  if (signal.aborted || isWatching) return;
  const state = new CacheState();
  isWatching = true;
  try {
    for await (const event of eventsOf(await call(path, { signal }))) {
      state.take(event);
      if (event.type !== 'start') tell(readingText(state));
    }
  } catch {
    // This engine does not show its requests.
  } finally {
    isWatching = false;
  }
}

/** @param {CacheState} state */
function readingText(state) {
  const rows = state.requestIds.map((id) => state.row(id)).filter((row) => row !== undefined && !isFinished(row));
  const reading = rows.filter((row) => row?.outputTokens === 0);
  const [row] = reading;
  if (row === undefined || reading.length > 1) return 'The model reads the prompt.';
  if (row.phases.at(-1)?.[0] === 'queued') return 'The request waits for its turn.';
  const read = Math.min(row.promptTokens, row.cachedTokens + row.computedTokens);
  return `The model reads the prompt: ${read.toLocaleString('en')} of ${row.promptTokens.toLocaleString('en')} tokens.`;
}
