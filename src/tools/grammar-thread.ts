import { CallThread, threadEntry } from '../base/call-thread.ts';
import type { GrammarBuilder } from '../grammar/grammars.ts';
import type { BuildAnswer, BuildJob } from '../grammar/network-codec.ts';

/** Compiles large grammars on another thread, one at a time. The thread starts with the first of them. */
export class GrammarThread implements GrammarBuilder {
  #thread: CallThread<BuildJob, BuildAnswer> | undefined;

  build(job: BuildJob): Promise<BuildAnswer> {
    this.#thread ??= new CallThread(threadEntry(import.meta.url, 'grammar-thread-main'), undefined, 'kvasir-grammar');
    return this.#thread.call(job);
  }

  /** Calls that are open reject. */
  close(): void {
    this.#thread?.end();
  }
}
