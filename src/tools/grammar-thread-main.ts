/** The code that the thread for grammars runs. See `grammar-thread.ts`. */
import { serveCalls } from '../base/call-thread.ts';
import { buildNetwork } from '../grammar/network.ts';
import { type BuildAnswer, type BuildJob, encodeNetwork } from '../grammar/network-codec.ts';
import { refusalOf, type StructuredJob, structuredGrammar } from '../grammar/structured-grammar.ts';
import { type AnswerJob, buildAnswer } from './answer-grammar.ts';

serveCalls(() => ({ job, controlTokens }: BuildJob): BuildAnswer => {
  try {
    const source = job as StructuredJob | AnswerJob;
    const grammar = source.kind === 'answer' ? buildAnswer(source) : structuredGrammar(source.outputs);
    return { network: encodeNetwork(buildNetwork(grammar, controlTokens)) };
  } catch (error) {
    const refusal = refusalOf(error);
    if (refusal === undefined) throw error;
    return { refusal };
  }
});
