import fc from 'fast-check';
import { expect, it } from 'vitest';
import { fuzzRuns } from '../../../../test/support/long-form.ts';
import { KvasirError } from '../../../base/errors.ts';
import type { ParseLimits } from '../../generation/request.ts';
import { errorAnswer } from '../../http/server-errors.ts';
import { parseResponse } from '../responses/parse-response.ts';
import { itemNotFound, previousResponseNotFound } from '../responses/response-errors.ts';
import { parseChat, parseCompletion, parseDetokenize, parseTokenize } from './parse.ts';

/**
 * For any body, parsing gives a request within the limits, or an error with status 400 and a complete message.
 * Not covered: whether accepted fields have the right meaning; the examples test it.
 */
const limits: ParseLimits = { vocabSize: 100, maxModelLen: 1000, choicesMax: 8 };

/** A part of a message without its value. */
const unfilled = /\{\w+\}|undefined/;

const names = [
  ...['prompt', 'messages', 'tokens', 'model', 'stream', 'stream_options', 'n', 'echo', 'logprobs', 'top_logprobs'],
  ...['max_tokens', 'max_completion_tokens', 'min_tokens', 'temperature', 'top_p', 'top_k', 'min_p', 'seed', 'stop'],
  ...['stop_token_ids', 'logit_bias', 'cache_salt', 'priority', 'tools', 'response_format', 'chat_template_kwargs'],
  ...['input', 'instructions', 'previous_response_id', 'text', 'reasoning', 'include', 'metadata', 'truncation'],
  ...['tool_choice', 'background', 'store', 'max_output_tokens', 'response_format', 'structured_outputs'],
  ...['best_of', 'suffix', 'add_special_tokens', 'return_token_ids', 'user', '__proto__', 'toString'],
];
const odd = fc.constantFrom(
  null,
  -1,
  0,
  1,
  2,
  1e300,
  -0,
  0.5,
  '',
  'a',
  '\ud800',
  [],
  {},
  true,
  false,
  2 ** 53,
  100,
  99,
);
const message = fc.record(
  { role: fc.oneof(fc.constantFrom('user', 'system'), odd), content: fc.oneof(fc.string({ unit: 'binary' }), odd) },
  { requiredKeys: [] },
);
const item = fc.record(
  {
    type: fc.oneof(
      fc.constantFrom('message', 'reasoning', 'function_call', 'function_call_output', 'item_reference', 'input_text'),
      odd,
    ),
    role: fc.oneof(fc.constantFrom('user', 'assistant'), odd),
    content: fc.oneof(fc.array(fc.record({ type: fc.constant('input_text'), text: odd }), { maxLength: 3 }), odd),
    call_id: odd,
    name: odd,
    arguments: odd,
    output: odd,
    summary: fc.oneof(fc.constant([]), odd),
    id: odd,
    parameters: odd,
  },
  { requiredKeys: [] },
);
const value = fc.oneof(
  { weight: 1, arbitrary: fc.array(item, { maxLength: 4 }) },
  { weight: 1, arbitrary: item },
  { weight: 3, arbitrary: odd },
  { weight: 1, arbitrary: fc.jsonValue() },
  { weight: 1, arbitrary: fc.array(odd, { maxLength: 3 }) },
  { weight: 1, arbitrary: fc.array(message, { maxLength: 3 }) },
);
const body = fc.oneof(
  { weight: 1, arbitrary: fc.jsonValue() },
  {
    weight: 9,
    arbitrary: fc
      .array(fc.tuple(fc.constantFrom(...names), value), { maxLength: 6 })
      .map((entries) => JSON.parse(JSON.stringify(Object.fromEntries(entries)))),
  },
);

it('accepts a body, or answers 400 with a complete message', () => {
  fc.assert(
    fc.property(body, (anything) => {
      for (const parse of [parseCompletion, parseChat, parseTokenize, parseDetokenize, parseWithoutStore]) {
        try {
          const parsed = parse(anything, limits);
          if ('params' in parsed) expect(parsed.params.n ?? 1).toBeLessThanOrEqual(limits.choicesMax);
          if ('prompts' in parsed) for (const prompt of parsed.prompts) expect(isSound(prompt)).toBe(true);
        } catch (error) {
          expect(error).toBeInstanceOf(KvasirError);
          const { status, body: answer } = errorAnswer(error);
          expect(status).toBe(400);
          // A message quotes the body, which may have such a text itself.
          if (!unfilled.test(JSON.stringify(anything))) expect(answer.error.message).not.toMatch(unfilled);
        }
      }
    }),
    { numRuns: fuzzRuns(2000) },
  );
});

function parseWithoutStore(anything: unknown, given: ParseLimits) {
  const { chat, chatOf, items } = parseResponse(anything, given, {
    history: (id) => {
      throw previousResponseNotFound({ parameter: 'previous_response_id', id });
    },
    item: (id) => {
      throw itemNotFound({ parameter: 'input', id });
    },
  });
  expect(chatOf(items)).toEqual(chat);
  return chat;
}

function isSound(prompt: string | Int32Array): boolean {
  if (typeof prompt === 'string') return !/\p{Surrogate}/u.test(prompt);
  return prompt.every((token) => token >= 0 && token < limits.vocabSize);
}
