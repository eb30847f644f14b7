/** The main file of the thread that blocks for hung calls of tiers and connectors without threads (`HungCalls`). */
import { serveCalls } from '../../base/call-thread.ts';
import { readFifo } from '../../base/fifo.ts';

serveCalls(() => (path: string) => readFifo(path));
