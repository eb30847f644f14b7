import { KvasirError } from '../base/errors.ts';
import { JobThread } from '../base/job-thread.ts';
import { entryPoint } from '../base/package-files.ts';
import { jobStopped } from '../base/thread-errors.ts';
import type { GrammarBuilder } from '../grammar/grammars.ts';
import type { BuildAnswer, BuildJob } from '../grammar/network-codec.ts';

/** The largest grammars that are allowed are compiled in 100 ms. */
const buildBudgetMs = 10_000;

/** Compiles large grammars on another thread, one at a time. */
export class GrammarThread implements GrammarBuilder {
  readonly jobs = new JobThread<BuildJob, BuildAnswer>({
    entry: entryPoint('src/tools/grammar-thread-main'),
    name: 'kvasir-grammar',
    work: 'Compiling large grammars',
  });

  async build(job: BuildJob, signal?: AbortSignal): Promise<BuildAnswer> {
    try {
      return await this.jobs.run(job, { budgetMs: buildBudgetMs, signal });
    } catch (error) {
      if (!(error instanceof KvasirError) || error.code !== jobStopped.definition.code) throw error;
      return { refusal: { problem: `compiling was stopped because ${error.fields.reason}`, isTooLarge: true } };
    }
  }

  close(): void {
    void this.jobs.close();
  }
}
