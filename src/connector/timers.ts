export type { Timer, Timers } from '../base/timers.ts';
