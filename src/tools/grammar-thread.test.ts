import { beforeAll, expect, it } from 'vitest';
import { buildCommand } from '../../test/support/cli-process.ts';
import { smallSource, smallVocabulary } from '../../test/support/grammar-vocabulary.ts';
import { type ConstraintState, isAllowed, type OutputConstraint } from '../core/constraint.ts';
import type { TokenId } from '../core/ids.ts';
import { readStructuredOutputs } from '../core/structured-outputs.ts';
import { Grammars } from '../grammar/grammars.ts';
import { structuredSource } from '../grammar/structured-grammar.ts';
import { answerGrammar } from './answer-grammar.ts';
import { GrammarThread } from './grammar-thread.ts';
import type { Tool } from './tool.ts';

// The thread runs the build.
beforeAll(buildCommand);

const values = Array.from({ length: 3000 }, (_, i) => `value ${i}`);

it('large schemas and large calls are compiled on the thread, refused with their reasons, and end with their clients', async () => {
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
  const format = { tools: 'hermes', offered: [], reasoning: undefined } as const;
  const call = answerGrammar({ calls, format, prompt: '', chatTemplate: '' })!;
  const called = await grammars.compile(call);
  const first = (await smallVocabulary()).controlTokens.get('<tool_call>') ?? '<'.charCodeAt(0);
  expect(isAllowed(called.allowedTokens(called.start, false), first)).toBe(true);

  const refused = structuredSource(
    readStructuredOutputs({ json: { anyOf: [{ enum: values }, { uniqueItems: true }] }, strict: true }),
  );
  await expect(grammars.compile(refused)).rejects.toThrow(/values only at #\/anyOf\/1\/uniqueItems/);

  // Doubles at each level, and is longer than what is compiled on the calling thread.
  const levels = Array.from({ length: 23 }, (_, i) => [
    `s${i}`,
    { allOf: Array(2).fill({ $ref: `#/$defs/s${i + 1}` }) },
  ]);
  const $defs = { ...Object.fromEntries(levels), s23: { type: 'string', description: 'x'.repeat(20_000) } };
  const endless = structuredSource(readStructuredOutputs({ json: { $ref: '#/$defs/s0', $defs } }));
  const controller = new AbortController();
  const left = grammars.compile(endless, controller.signal);
  left.catch(() => undefined);
  const waiting = Array.from({ length: 100 }, () => grammars.compile(endless, controller.signal).catch(String));
  controller.abort(new Error('the client is gone'));
  await expect(left).rejects.toThrow();
  await Promise.all(waiting);
  const other = { enum: values.slice(1) };
  await grammars.compile(structuredSource(readStructuredOutputs({ json: other })));

  grammars.close();
  await expect(grammars.compile(structuredSource(readStructuredOutputs({ choice: values })))).rejects.toThrow(/closed/);
});

it('a strict tool whose schema cannot be compiled is not called, and another one has any arguments, with a note', async () => {
  const thread = new GrammarThread();
  const notes: string[] = [];
  const grammars = new Grammars(smallSource, thread, (found, parameter) => void notes.push(`${parameter}: ${found}`));
  const tool = (name: string, parameters: object, strict = false) =>
    ({ type: 'function', function: { name, parameters, strict } }) as Tool;
  const text = (pattern: string) => ({ properties: { a: { type: 'string', pattern } }, required: ['a'] });
  const good = tool('good', text('^(?=.*\\bred\\b)[\\p{L} ]{3,9}(?<!d)$'), true);
  const bad = tool('bad', text('(a)\\1'), true);
  const unique = tool('unique', { properties: { a: { uniqueItems: true } } }, true);
  // Doubles at each level.
  const levels = Array.from({ length: 20 }, (_, i) => [
    `s${i}`,
    {
      anyOf: [{ minLength: i }, { maxLength: 99 - i }].map((own) => ({
        ...own,
        allOf: [{ $ref: `#/$defs/s${i + 1}` }],
      })),
    },
  ]);
  const $defs = { ...Object.fromEntries(levels), s20: { type: 'string' } };
  const large = { properties: { a: { $ref: '#/$defs/s0' } }, $defs };
  const largest = tool('largest', large, true);
  const free = tool('free', large);
  const format = { tools: 'hermes', offered: [], reasoning: undefined } as const;
  const compile = (...tools: Tool[]) => {
    const calls = { tools, isRequired: true, areParallel: false };
    return grammars.compile(answerGrammar({ calls, format, prompt: '', chatTemplate: '' })!);
  };
  const { controlTokens } = await smallVocabulary();
  /** Whether the answer may call the tool. */
  const mayCall = (constraint: OutputConstraint, name: string): boolean => {
    let state: ConstraintState | undefined = constraint.start;
    const tag = controlTokens.get('<tool_call>');
    const bytes = new TextEncoder().encode(`${tag === undefined ? '<tool_call>' : ''}\n{"name": "${name}"`);
    for (const token of [...(tag === undefined ? [] : [tag]), ...bytes])
      state = state && constraint.advance(state, token as TokenId);
    return state !== undefined;
  };
  for (const others of [
    [bad, unique],
    [bad, largest],
  ]) {
    const constraint = await compile(others[0]!, good, others[1]!);
    expect([good, ...others].map((one) => mayCall(constraint, one.function.name))).toEqual([true, false, false]);
  }
  expect(mayCall(await compile(free), 'free')).toBe(true);
  expect(notes).toEqual([
    expect.stringMatching(/^tools: the tool `bad` cannot be called: .*pattern.* tool `bad`,the tool `unique` cannot/),
    expect.stringMatching(/^tools: the tool `bad` cannot be called: .*,the tool `largest` cannot be called: it/),
    expect.stringMatching(/^tools: the arguments of the tool `free` are not restricted: it needs more than/),
  ]);
  await expect(compile(bad, unique)).rejects.toThrow(/of the parameters of the tool `bad`/);
  grammars.close();
});
