import type { GrammarBuilder } from '../../src/grammar/grammars.ts';
import { buildNetwork } from '../../src/grammar/network.ts';
import { type BuildJob, encodeNetwork } from '../../src/grammar/network-codec.ts';
import { refusalOf, type StructuredJob, structuredGrammar } from '../../src/grammar/structured-grammar.ts';

/** Compiles in the thread of the test, and copies jobs and answers as another thread gets them. */
export const buildsHere: GrammarBuilder = {
  build: async (given) => {
    const { job, controlTokens } = structuredClone(given) as BuildJob & { readonly job: StructuredJob };
    try {
      const network = buildNetwork(structuredGrammar(job.outputs), controlTokens);
      return structuredClone({ network: encodeNetwork(network) });
    } catch (error) {
      const refusal = refusalOf(error);
      if (refusal === undefined) throw error;
      return { refusal };
    }
  },
  close: () => undefined,
};
