import type { Body, CallArguments, Expression, Signature, Statement, Target } from './ast.ts';

/** The expressions directly inside of an expression. */
export function partsOf(expression: Expression): readonly Expression[] {
  switch (expression.kind) {
    case 'constant':
    case 'name':
      return [];
    case 'list':
    case 'tuple':
      return expression.items;
    case 'dict':
      return expression.entries.flat();
    case 'attribute':
      return [expression.object];
    case 'item':
      return [expression.object, expression.key];
    case 'slice': {
      const { start, stop, step } = expression.slice;
      return [expression.object, ...given(start, stop, step)];
    }
    case 'call':
      return [expression.callee, ...argumentsOf(expression.args)];
    case 'filter':
    case 'test':
      return [expression.value, ...argumentsOf(expression.args)];
    case 'not':
    case 'negative':
    case 'positive':
      return [expression.value];
    case 'and':
    case 'or':
    case 'binary':
      return [expression.left, expression.right];
    case 'concat':
      return expression.parts;
    case 'compare':
      return [expression.first, ...expression.rest.map(({ right }) => right)];
    case 'conditional':
      return [expression.test, expression.then, ...given(expression.otherwise)];
  }
}

const given = (...parts: readonly (Expression | undefined)[]): Expression[] =>
  parts.filter((part) => part !== undefined);

const argumentsOf = ({ positional, named, moreItems, moreNames }: CallArguments): Expression[] => [
  ...positional,
  ...named.map(([, value]) => value),
  ...given(moreItems, moreNames),
];

/** What a statement has directly inside. */
export interface Inside {
  readonly expressions: readonly Expression[];
  readonly bodies: readonly Body[];
  /** Names that it sets. */
  readonly targets: readonly Target[];
}

const nameTarget = (name: string): Target => ({ kind: 'name', name });
const signatureTargets = ({ names }: Signature): Target[] => names.map(nameTarget);

export function insideOf(statement: Statement): Inside {
  switch (statement.kind) {
    case 'text':
    case 'break':
    case 'continue':
    case 'load':
      return { expressions: [], bodies: [], targets: [] };
    case 'print':
      return { expressions: [statement.value], bodies: [], targets: [] };
    case 'set':
      return { expressions: [statement.value], bodies: [], targets: [statement.target] };
    case 'set block':
      return { expressions: given(statement.filter), bodies: [statement.body], targets: [statement.target] };
    case 'if':
      return {
        expressions: statement.branches.map(({ test }) => test),
        bodies: [...statement.branches.map(({ body }) => body), statement.otherwise],
        targets: [],
      };
    case 'for':
      return {
        expressions: given(statement.iterable, statement.test),
        bodies: [statement.body, statement.otherwise],
        targets: [statement.target],
      };
    case 'macro': {
      const { signature, body, name } = statement;
      return {
        expressions: signature.defaults,
        bodies: [body],
        targets: [nameTarget(name), ...signatureTargets(signature)],
      };
    }
    case 'call block': {
      const { call, signature, body } = statement;
      return { expressions: [call, ...signature.defaults], bodies: [body], targets: signatureTargets(signature) };
    }
    case 'filter block':
      return { expressions: given(statement.filter), bodies: [statement.body], targets: [] };
    case 'with': {
      const targets = statement.values.map(([target]) => target);
      return { expressions: statement.values.map(([, value]) => value), bodies: [statement.body], targets };
    }
    case 'autoescape':
      return { expressions: [statement.isOn], bodies: [statement.body], targets: [] };
    case 'scope':
    case 'block':
      return { expressions: [], bodies: [statement.body], targets: [] };
  }
}

/** Calls the function for each statement, at any depth. */
export function eachStatement(body: Body, visit: (statement: Statement) => void): void {
  for (const statement of body) {
    visit(statement);
    for (const inner of insideOf(statement).bodies) eachStatement(inner, visit);
  }
}

/** Calls the function for each expression, at any depth. */
export function eachExpression(body: Body, visit: (expression: Expression) => void): void {
  const enter = (expression: Expression): void => {
    visit(expression);
    for (const part of partsOf(expression)) enter(part);
  };
  eachStatement(body, (statement) => {
    for (const expression of insideOf(statement).expressions) enter(expression);
  });
}

/** The names that a body reads. */
export function namesIn(body: Body): Set<string> {
  const names = new Set<string>();
  eachExpression(body, (expression) => {
    if (expression.kind === 'name') names.add(expression.name);
  });
  return names;
}
