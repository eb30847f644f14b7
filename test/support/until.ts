import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Waits for a state that causes no event. Between two looks the thread sleeps: a loop without a pause takes a core from the threads and
 * processes that the test waits for.
 */
export async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await sleep(1);
}
