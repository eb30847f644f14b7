/** The priority of threads that do work which can wait. */
import koffi from 'koffi';

const PRIO_PROCESS = 0;
const CALLING_THREAD = 0;
/** A tenth of the usual share of a busy core. With 19, the lowest priority, it would be 1.5 %. */
const LOW_PRIORITY = 10;

/**
 * Gives the calling thread a low priority (nice 10), for as long as it lives: without special rights a thread cannot raise its
 * priority again. The thread then mostly uses time that no other thread wants. False if the system cannot do this: only on
 * Linux, `setpriority` applies to one thread and not to the whole process.
 */
export function lowerThreadPriority(): boolean {
  if (process.platform !== 'linux') return false;
  try {
    const setPriority = koffi.load(null).func('setpriority', 'int', ['int', 'uint', 'int']);
    return setPriority(PRIO_PROCESS, CALLING_THREAD, LOW_PRIORITY) === 0;
  } catch {
    // The symbol is missing, for example in a statically linked Node.
    return false;
  }
}
