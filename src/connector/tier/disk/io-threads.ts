import { assert, assertDefined } from '../../../base/assert.ts';
import { CallThread, serveCalls } from '../../../base/call-thread.ts';
import { SpareThreads } from '../../../base/spare-threads.ts';
import { lowerThreadPriority } from '../../../base/thread-priority.ts';

/** A thread serves one pool after another, with a setup for each. */
type IoMessage<Setup, Call> = { readonly setup: Setup; readonly isBackground: boolean } | { readonly call: Call };

export type IoThread = CallThread<IoMessage<object, unknown>, unknown>;

/** Which threads a pool uses. */
export interface IoThreadKind {
  /** The built file of the threads; it calls `serveIoCalls`. */
  readonly entry: URL;
  /** The threads have a low priority where the system can do this. They keep it for as long as they live. */
  readonly isBackground: boolean;
}

/**
 * The main function of a pool's threads. `open` gets the pool's setup and returns the function for calls, which may
 * block.
 */
export function serveIoCalls<Setup, Call, Answer>(open: (setup: Setup) => (call: Call) => Answer): void {
  serveCalls(() => {
    let answer: ((call: Call) => Answer) | undefined;
    let isBackground = false;
    return (message: IoMessage<Setup, Call>): Answer | undefined => {
      if ('call' in message) return assertDefined(answer, 'a call before the setup')(message.call);
      assert(message.isBackground || !isBackground, 'a thread of low priority serves a pool of usual priority');
      if (message.isBackground && !isBackground) lowerThreadPriority();
      isBackground = message.isBackground;
      answer = open(message.setup);
      return undefined;
    };
  });
}

const spares = new SpareThreads<IoMessage<object, unknown>, unknown>(8);

/** A spare thread, or a new one. @throws the system's error if no thread can start */
export function takeIoThread(kind: IoThreadKind): IoThread {
  return spares.take(nameOf(kind)) ?? new CallThread(kind.entry, undefined, 'kvasir I/O');
}

export const keepIoThread = (kind: IoThreadKind, thread: IoThread): Promise<void> => spares.keep(nameOf(kind), thread);

const nameOf = ({ entry, isBackground }: IoThreadKind): string => `${entry.href} ${isBackground}`;
