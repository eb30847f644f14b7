import { assert, assertDefined } from '../../../base/assert.ts';
import { CallThread, serveCalls } from '../../../base/call-thread.ts';
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

/** Threads of closed pools, for reuse: starting a thread takes a hundred times as long as a call. */
export class SpareThreads {
  readonly #spares: { readonly name: string; readonly thread: IoThread }[] = [];

  /** A spare thread, or a new one. */
  pop(kind: IoThreadKind): IoThread {
    const at = this.#spares.findIndex(({ name }) => name === nameOf(kind));
    const [found] = at < 0 ? [] : this.#spares.splice(at, 1);
    if (found === undefined || found.thread.hasEnded) return new CallThread(kind.entry, undefined, 'kvasir I/O');
    assert(found.thread.openCount === 0, 'a spare thread has an open call');
    return found.thread;
  }

  async push(kind: IoThreadKind, thread: IoThread): Promise<void> {
    assert(thread.openCount === 0, 'a thread with an open call is not spare');
    if (this.#spares.length < sparesMax) this.#spares.push({ name: nameOf(kind), thread });
    else await thread.close();
  }
}

const sparesMax = 8;

const nameOf = ({ entry, isBackground }: IoThreadKind): string => `${entry.href} ${isBackground}`;
