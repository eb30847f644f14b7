import { beforeAll, expect, it } from 'vitest';
import { buildCommand } from '../../test/support/cli-process.ts';
import { smallSource, smallVocabulary } from '../../test/support/grammar-vocabulary.ts';
import { isAllowed } from '../core/constraint.ts';
import type { TokenId } from '../core/ids.ts';
import { readStructuredOutputs } from '../core/structured-outputs.ts';
import { Grammars } from '../grammar/grammars.ts';
import { structuredSource } from '../grammar/structured-grammar.ts';
import { answerGrammar } from './answer-grammar.ts';
import { GrammarThread } from './grammar-thread.ts';

// The thread runs the build.
beforeAll(buildCommand);

const values = Array.from({ length: 3000 }, (_, i) => `value ${i}`);

it('large schemas and large calls are compiled on the thread, and refused with their reasons', async () => {
  const thread = new GrammarThread();
  const grammars = new Grammars(smallSource, thread);
  const large = structuredSource(readStructuredOutputs({ json: { enum: values } }));
  const constraint = await grammars.compile(large);
  let state = constraint.start;
  for (const byte of new TextEncoder().encode('"value 2999"')) state = constraint.advance(state, byte as TokenId)!;
  expect(constraint.isComplete(state)).toBe(true);

  const parameters = { properties: { value: { enum: values } }, required: ['value'] };
  const tools = [{ type: 'function', function: { name: 'choose', parameters } }] as const;
  const calls = { tools, isRequired: true, areParallel: false };
  const format = { tools: 'hermes', reasoning: undefined } as const;
  const call = answerGrammar({ calls, format, prompt: '', chatTemplate: '' })!;
  const called = await grammars.compile(call);
  const first = (await smallVocabulary()).controlTokens.get('<tool_call>') ?? '<'.charCodeAt(0);
  expect(isAllowed(called.allowedTokens(called.start, false), first)).toBe(true);

  const refused = structuredSource(
    readStructuredOutputs({ json: { anyOf: [{ enum: values }, { uniqueItems: true }] }, strict: true }),
  );
  await expect(grammars.compile(refused)).rejects.toThrow(/values only at #\/anyOf\/1\/uniqueItems/);
  grammars.close();
  await expect(grammars.compile(structuredSource(readStructuredOutputs({ choice: values })))).rejects.toThrow(/closed/);
});
