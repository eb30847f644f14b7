import {
  choiceOf,
  classOf,
  codePointMax,
  type Expression,
  empty,
  nothing,
  repeat,
  sequence,
  without,
} from './expression.ts';
import { type StringForm, textOfAutomaton } from './json-text.ts';

/** Text without `<`, so that it cannot contain the tag that ends it. */
const letters = without([{ first: 0, last: codePointMax }], [{ first: 0x3c, last: 0x3c }]);
const plain = classOf(letters);
const anyPlain = repeat(plain, 0, Infinity);
const lengthMax = 1_000_000;

/** Texts as they are, without quotes and escapes. What they must not contain is given as automata. */
export const plainForm: StringForm = {
  any: ({ min, max }) => repeat(plain, min, Math.min(max, lengthMax)),
  ofBranches: (branches) =>
    choiceOf(
      branches.map(({ body, isAtStart, isAtEnd }) =>
        sequence(isAtStart ? empty : anyPlain, withoutTags(body), isAtEnd ? empty : anyPlain),
      ),
    ),
  ofAutomaton: (automaton, lengths, _, budget) => textOfAutomaton(automaton, lengths, budget),
};

function withoutTags(expression: Expression): Expression {
  switch (expression.kind) {
    case 'text':
      return expression.text.includes('<') ? nothing : expression;
    case 'class':
      return classOf(without(expression.ranges, [{ first: 0x3c, last: 0x3c }]));
    case 'sequence':
      return { ...expression, parts: expression.parts.map(withoutTags) };
    case 'choice':
      return { ...expression, options: expression.options.map(withoutTags) };
    case 'repeat':
      return { ...expression, part: withoutTags(expression.part) };
    default:
      return expression;
  }
}
