import { type Automaton, rangesOf } from './automaton.ts';
import type { Budget } from './budget.ts';
import { automatonOfPattern } from './determinize.ts';
import {
  type AutomatonState,
  atEnd,
  atStart,
  choiceOf,
  classOf,
  type Expression,
  nothing,
  sequenceOf,
} from './expression.ts';
import { branchesOf, parseRegex } from './regex.ts';

const statesMax = 5000;

/**
 * The whole output matches the pattern, as in Python's `re.fullmatch`.
 * @throws RegexError, AutomatonTooLarge or LimitError
 */
export function wholeRegex(pattern: string, budget: Budget): Expression {
  const parsed = parseRegex(pattern, { onProperty: () => budget.spendSteps(5000) });
  const branches = branchesOf(parsed);
  if (branches !== undefined) return choiceOf(branches.map(({ body }) => body));
  const parts = parsed.kind === 'sequence' ? parsed.parts : [parsed];
  const inner = parts[0] === atStart ? parts.slice(1) : parts;
  const automaton = automatonOfPattern(sequenceOf([atStart, ...inner, atEnd]), budget, statesMax);
  return automaton === undefined ? nothing : asExpression(automaton);
}

export const asExpression = (automaton: Automaton): Expression => ({ kind: 'automaton', states: statesOf(automaton) });

const statesOf = ({ alphabet, next, accepts }: Automaton): AutomatonState[] =>
  Array.from(accepts, (isEnd, state) => {
    const row = next.subarray(state * alphabet.count, (state + 1) * alphabet.count);
    const targets = [...new Set(row)].filter((target) => target !== -1);
    return {
      accepts: isEnd === 1,
      edges: targets.map((target) => ({
        part: classOf(rangesOf(alphabet, (symbol) => row[symbol] === target)),
        target,
      })),
    };
  });
