import { Grammars } from '../grammar/grammars.ts';
import type { VocabularySource } from '../grammar/vocabulary.ts';
import type { GrammarThread } from '../tools/grammar-thread.ts';
import type { EngineEvent } from './contract.ts';

/** The grammars of an engine. They warn of keywords that a grammar does not keep, when it is compiled. */
export function grammarsOf(
  tokenizer: VocabularySource,
  thread: GrammarThread,
  onEvent: ((event: EngineEvent) => void) | undefined,
): Grammars {
  return new Grammars(tokenizer, thread, (notes, parameter) => {
    const message = `Outputs may not match \`${parameter}\`, which is not strict: ${notes.join('; ')}.`;
    onEvent?.({ level: 'warn', message, fields: { parameter } });
  });
}
