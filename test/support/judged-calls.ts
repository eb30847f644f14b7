import { expect } from 'vitest';
import type { JsonObject } from '../../src/base/json.ts';
import { Matcher } from '../../src/grammar/matcher.ts';
import { MatcherMemory } from '../../src/grammar/matcher-memory.ts';
import { buildNetwork } from '../../src/grammar/network.ts';
import { type AnswerJob, answerGrammar, buildAnswer } from '../../src/tools/answer-grammar.ts';
import { parserOf, type ToolFormat } from '../../src/tools/formats.ts';
import type { AnswerPart, Tool } from '../../src/tools/tool.ts';
import type { smallVocabulary } from './grammar-vocabulary.ts';

export interface AskedCalls {
  readonly format: ToolFormat;
  readonly tools: readonly Tool[];
  readonly areParallel?: boolean;
  readonly chatTemplate?: string;
}

/** The matcher of an answer that must be calls, and what it does not keep. Throws what the grammar's compiler throws. */
export function matcherOfCalls(
  { format, tools, areParallel = false, chatTemplate = '' }: AskedCalls,
  vocabulary: Awaited<ReturnType<typeof smallVocabulary>>,
) {
  const source = answerGrammar({
    calls: { tools, isRequired: true, areParallel },
    format: { tools: format, offered: tools, reasoning: undefined },
    prompt: '',
    chatTemplate,
  })!;
  const network = buildNetwork(buildAnswer(structuredClone(source.job) as AnswerJob), vocabulary.controlTokens);
  return { matcher: new Matcher(network, vocabulary, new MatcherMemory(2 ** 24)), notes: network.notes };
}

/** The calls that the parser of the format reads. Content is a failure. */
export function callsIn(format: ToolFormat, tools: readonly Tool[], ...pieces: readonly string[]) {
  const parser = parserOf(format, tools);
  const parts: readonly AnswerPart[] = [...pieces.flatMap((piece) => parser.add(piece)), ...parser.end()];
  const calls: { name: string; text: string }[] = [];
  for (const part of parts) {
    if (part.kind === 'call') calls.push({ name: part.name, text: '' });
    else if (part.kind === 'arguments') calls[part.index]!.text += part.text;
    else expect([part, pieces]).toEqual([]);
  }
  return calls;
}

export const toolOf = (parameters: JsonObject, strict: boolean, name = 'f'): Tool => ({
  type: 'function',
  function: { name, parameters, strict },
});
