import { attributeOf, callValue, itemOf, sliceOf } from './access.ts';
import type { CallArguments, Comparison, Expression } from './ast.ts';
import { noArguments } from './bind.ts';
import { compare, contains, equals } from './compare.ts';
import { TemplateError, TemplateSyntaxError } from './errors.ts';
import { escapeHtml } from './escape.ts';
import { charge, checkLength } from './meter.ts';
import { negate, operate, positive } from './operators.ts';
import { print } from './print.ts';
import type { Scope } from './scope.ts';
import { type Arguments, Dict, isTrue, iterate, Markup, Tuple, typeName, Undefined, type Value } from './values.ts';

export type Evaluate = (scope: Scope) => Value;

export type Filter = (value: Value, args: Arguments) => Value;
export type Test = (value: Value, args: Arguments) => boolean;

/** The filters and tests of templates. */
export interface Library {
  filter(name: string): Filter | undefined;
  test(name: string): Test | undefined;
}

export interface Settings {
  readonly library: Library;
  /** Whether texts are escaped for HTML. */
  readonly escapes: boolean;
  /** Inside of a condition, an unknown filter is an error only if it is used. */
  readonly isConditional: boolean;
}

/** A function that evaluates the expression. Each evaluation of a part costs one step. */
export function compileExpression(expression: Expression, settings: Settings): Evaluate {
  const compile = (part: Expression): Evaluate => compileExpression(part, settings);
  const run = compileKind(expression, compile, settings);
  return (scope) => {
    charge(1);
    return run(scope);
  };
}

type Compile = (part: Expression) => Evaluate;

function compileKind(expression: Expression, compile: Compile, settings: Settings): Evaluate {
  switch (expression.kind) {
    case 'constant': {
      const { value } = expression;
      return () => value;
    }
    case 'name': {
      const { name } = expression;
      return (scope) => scope.get(name);
    }
    case 'list':
    case 'tuple': {
      const items = expression.items.map(compile);
      const isList = expression.kind === 'list';
      return (scope) => {
        const values = items.map((item) => item(scope));
        return isList ? values : new Tuple(values);
      };
    }
    case 'dict': {
      const entries = expression.entries.map(([key, value]) => [compile(key), compile(value)] as const);
      return (scope) => new Dict(entries.map(([key, value]) => [key(scope), value(scope)]));
    }
    case 'attribute': {
      const { name } = expression;
      const object = compile(expression.object);
      return (scope) => attributeOf(object(scope), name);
    }
    case 'item': {
      const [object, key] = [compile(expression.object), compile(expression.key)];
      return (scope) => itemOf(object(scope), key(scope));
    }
    case 'slice':
      return compileSlice(expression, compile);
    case 'call':
      return compileCall(expression, compile, settings);
    case 'filter':
      return compileFilter(expression, compile, settings);
    case 'test':
      return compileTest(expression, compile, settings);
    default:
      return compileOperation(expression, compile, settings);
  }
}

type Operation = Exclude<
  Expression,
  {
    kind: 'constant' | 'name' | 'list' | 'tuple' | 'dict' | 'attribute' | 'item' | 'slice' | 'call' | 'filter' | 'test';
  }
>;

function compileOperation(expression: Operation, compile: Compile, settings: Settings): Evaluate {
  switch (expression.kind) {
    case 'not': {
      const value = compile(expression.value);
      return (scope) => !isTrue(value(scope));
    }
    case 'negative':
    case 'positive': {
      const value = compile(expression.value);
      const operation = expression.kind === 'negative' ? negate : positive;
      return (scope) => operation(value(scope));
    }
    case 'and':
    case 'or': {
      const [left, right] = [compile(expression.left), compile(expression.right)];
      const goesOn = expression.kind === 'and';
      return (scope) => {
        const value = left(scope);
        return isTrue(value) === goesOn ? right(scope) : value;
      };
    }
    case 'binary': {
      const { operator } = expression;
      const [left, right] = [compile(expression.left), compile(expression.right)];
      return (scope) => operate(operator, left(scope), right(scope));
    }
    case 'concat':
      return compileConcat(expression.parts.map(compile), settings.escapes);
    case 'compare':
      return compileComparison(compile(expression.first), expression.rest, compile);
    case 'conditional': {
      const inside = (part: Expression): Evaluate => compileExpression(part, { ...settings, isConditional: true });
      const [test, then] = [inside(expression.test), inside(expression.then)];
      const reason = `the inline if-expression on line ${expression.line} evaluated to false and no else section was defined.`;
      const otherwise = expression.otherwise === undefined ? () => new Undefined(reason) : inside(expression.otherwise);
      return (scope) => (isTrue(test(scope)) ? then(scope) : otherwise(scope));
    }
  }
}

function compileSlice(expression: Expression & { kind: 'slice' }, compile: Compile): Evaluate {
  const object = compile(expression.object);
  const part = (bound: Expression | undefined): Evaluate => (bound === undefined ? () => null : compile(bound));
  const { slice } = expression;
  const [start, stop, step] = [part(slice.start), part(slice.stop), part(slice.step)];
  return (scope) => sliceOf(object(scope), start(scope), stop(scope), step(scope));
}

function compileCall(expression: Expression & { kind: 'call' }, compile: Compile, { escapes }: Settings): Evaluate {
  const callee = compile(expression.callee);
  const args = compileArguments(expression.args, compile);
  if (!escapes) return (scope) => callValue(callee(scope), args(scope));
  return (scope) => {
    const called = callee(scope);
    const result = callValue(called, args(scope));
    return typeof result === 'string' && typeName(called) === 'Macro' ? new Markup(result) : result;
  };
}

/** The values of a call's arguments. */
export function compileArguments(args: CallArguments, compile: Compile): (scope: Scope) => Arguments {
  const { moreItems, moreNames } = args;
  const positional = args.positional.map(compile);
  const named = args.named.map(([name, value]) => [name, compile(value)] as const);
  if (moreItems === undefined && moreNames === undefined && named.length === 0) {
    if (positional.length === 0) return () => noArguments;
    return (scope) => ({ positional: positional.map((value) => value(scope)), named: noArguments.named });
  }
  const [items, names] = [moreItems && compile(moreItems), moreNames && compile(moreNames)];
  return (scope) => ({
    positional: [...positional.map((value) => value(scope)), ...(items === undefined ? [] : iterate(items(scope)))],
    named: namedArguments(
      named.map(([name, value]) => [name, value(scope)] as const),
      names?.(scope),
    ),
  });
}

function namedArguments(given: readonly (readonly [string, Value])[], more: Value | undefined): Map<string, Value> {
  const named = new Map<string, Value>();
  const add = (name: string, value: Value): void => {
    if (named.has(name)) throw new TemplateError(`got multiple values for keyword argument '${name}'`);
    named.set(name, value);
  };
  for (const [name, value] of given) add(name, value);
  if (more === undefined) return named;
  if (!(more instanceof Dict)) throw new TemplateError('the argument after ** must be a mapping');
  for (const [name, value] of more.entries()) add(print(name), value);
  return named;
}

function compileFilter(expression: Expression & { kind: 'filter' }, compile: Compile, settings: Settings): Evaluate {
  const filter = known('filter', expression.name, settings.library.filter(expression.name), settings);
  const value = compile(expression.value);
  const args = compileArguments(expression.args, compile);
  return (scope) => filter(value(scope), args(scope));
}

function compileTest(expression: Expression & { kind: 'test' }, compile: Compile, settings: Settings): Evaluate {
  const test = known('test', expression.name, settings.library.test(expression.name), settings);
  const value = compile(expression.value);
  const args = compileArguments(expression.args, compile);
  return (scope) => test(value(scope), args(scope));
}

function known<T>(kind: string, name: string, found: T | undefined, { isConditional }: Settings): T | (() => never) {
  if (found !== undefined) return found;
  const message = `No ${kind} named '${name}'.`;
  if (!isConditional) throw new TemplateSyntaxError(message, 1);
  return () => {
    throw new TemplateError(message);
  };
}

function compileConcat(parts: readonly Evaluate[], escapes: boolean): Evaluate {
  return (scope) => {
    const values = parts.map((part) => part(scope));
    if (escapes && values.some((value) => value instanceof Markup)) {
      return new Markup(joined(values.map((value) => escapeHtml(value).text)));
    }
    return joined(values.map(print));
  };
}

function joined(texts: readonly string[]): string {
  let text = '';
  for (const part of texts) text += part;
  checkLength(text.length);
  return text;
}

function compileComparison(first: Evaluate, rest: readonly Comparison[], compile: Compile): Evaluate {
  const steps = rest.map(({ operator, right }) => [comparisons[operator], compile(right)] as const);
  return (scope) => {
    let left = first(scope);
    for (const [isSo, right] of steps) {
      const value = right(scope);
      if (!isSo(left, value)) return false;
      left = value;
    }
    return true;
  };
}

const comparisons: Readonly<Record<Comparison['operator'], (a: Value, b: Value) => boolean>> = {
  '==': equals,
  '!=': (a, b) => !equals(a, b),
  '<': (a, b) => compare(a, b, '<') < 0,
  '<=': (a, b) => compare(a, b, '<=') <= 0,
  '>': (a, b) => compare(a, b, '>') > 0,
  '>=': (a, b) => compare(a, b, '>=') >= 0,
  in: (a, b) => contains(b, a),
  'not in': (a, b) => !contains(b, a),
};
