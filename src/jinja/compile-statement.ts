import { callValue } from './access.ts';
import {
  type Body,
  blockText,
  type FilterOf,
  type ForStatement,
  type Signature,
  type Statement,
  type Target,
} from './ast.ts';
import { compileArguments, compileExpression, type Evaluate, type Settings } from './compile-expression.ts';
import { TemplateError, TemplateSyntaxError } from './errors.ts';
import { escapeHtml } from './escape.ts';
import { Loop, type Recurse, sizeOf } from './loop.ts';
import { type Bound, Macro, type MacroShape } from './macro.ts';
import { charge, checkLength } from './meter.ts';
import { print } from './print.ts';
import { Output, Scope } from './scope.ts';
import {
  isText,
  isTrue,
  iterate,
  listOf,
  Markup,
  Namespace,
  orElse,
  textOf,
  typeName,
  Undefined,
  type Value,
} from './values.ts';
import { namesIn } from './walk.ts';

/** How a statement ended: `break` and `continue` end the statements around them, up to their loop. */
type Ending = 'break' | 'continue' | undefined;

export type Run = (scope: Scope, output: Output) => Ending;

/** A function that runs the statements and adds their text to the output. */
export function compileBody(body: Body, settings: Settings): Run {
  const runs = body.map((statement) => compileStatement(statement, settings));
  return (scope, output) => {
    for (const run of runs) {
      charge(1);
      const ending = run(scope, output);
      if (ending !== undefined) return ending;
    }
    return undefined;
  };
}

function compileStatement(statement: Statement, settings: Settings): Run {
  switch (statement.kind) {
    case 'text': {
      const { text } = statement;
      return (_, output) => write(output, text);
    }
    case 'print':
      return compilePrint(compileExpression(statement.value, settings), settings);
    case 'set': {
      const value = compileExpression(statement.value, settings);
      const assign = compileTarget(statement.target);
      return (scope) => assign(scope, value(scope));
    }
    case 'if':
      return compileIf(statement, { ...settings, isConditional: true });
    case 'for':
      return compileFor(statement, settings);
    case 'macro': {
      const { name, signature, body } = statement;
      const make = compileMacro(name, signature, body, settings);
      return (scope) => {
        scope.set(name, make(scope));
        return undefined;
      };
    }
    case 'break':
    case 'continue': {
      const { kind } = statement;
      return () => kind;
    }
    case 'load':
      return () => {
        throw new TemplateError('no loader for this environment specified: there are no other templates');
      };
    default:
      return compileBlock(statement, settings);
  }
}

type Block = Exclude<
  Statement,
  { kind: 'text' | 'print' | 'set' | 'if' | 'for' | 'macro' | 'break' | 'continue' | 'load' }
>;

/** Statements with one body and a scope of its own. */
function compileBlock(statement: Block, settings: Settings): Run {
  switch (statement.kind) {
    case 'set block': {
      const text = compileText(statement.filter, statement.body, settings);
      const assign = compileTarget(statement.target);
      return (scope) => text(scope, (value) => assign(scope, value));
    }
    case 'filter block': {
      const text = compileText(statement.filter, statement.body, settings);
      return (scope, output) =>
        text(scope, (value) => {
          if (!isText(value)) throw new TemplateError(`a filter block needs a text, not ${typeName(value)}`);
          return write(output, textOf(value));
        });
    }
    case 'call block':
      return compileCallBlock(statement, settings);
    case 'with': {
      const values = statement.values.map(
        ([target, value]) => [compileTarget(target), compileExpression(value, settings)] as const,
      );
      const run = compileBody(statement.body, settings);
      return (scope, output) => {
        const inner = new Scope(scope);
        for (const [assign, value] of values) assign(inner, value(scope));
        return run(inner, output);
      };
    }
    case 'autoescape': {
      if (statement.isOn.kind !== 'constant') throw new TemplateSyntaxError('autoescape needs true or false', 1);
      const run = compileBody(statement.body, { ...settings, escapes: isTrue(statement.isOn.value) });
      return (scope, output) => run(new Scope(scope), output);
    }
    case 'scope': {
      const run = compileBody(statement.body, settings);
      return (scope, output) => run(new Scope(scope), output);
    }
    case 'block': {
      const { isScoped } = statement;
      const run = compileBody(statement.body, settings);
      return (scope, output) => run(new Scope(isScoped ? scope : scope.top), output);
    }
  }
}

function write(output: Output, text: string): undefined {
  checkLength(output.text.length + text.length);
  output.text += text;
}

function compilePrint(value: Evaluate, { escapes }: Settings): Run {
  if (escapes) return (scope, output) => write(output, escapeHtml(value(scope)).text);
  return (scope, output) => write(output, print(value(scope)));
}

type Assign = (scope: Scope, value: Value) => undefined;

function compileTarget(target: Target): Assign {
  if (target.kind === 'name') {
    const { name } = target;
    return (scope, value) => {
      scope.set(name, value);
    };
  }
  if (target.kind === 'field') {
    const { object, name } = target;
    return (scope, value) => {
      const namespace = scope.get(object);
      if (!(namespace instanceof Namespace)) throw new TemplateError('cannot assign attribute on non-namespace object');
      namespace.set(name, value);
    };
  }
  const targets = target.targets.map(compileTarget);
  return (scope, value) => {
    const values = unpacked(value, targets.length);
    for (const [i, assign] of targets.entries()) assign(scope, values[i]!);
  };
}

function unpacked(value: Value, count: number): readonly Value[] {
  if (value !== null && ['int', 'float', 'bool'].includes(typeName(value))) {
    throw new TemplateError(`cannot unpack non-iterable ${typeName(value)} object`);
  }
  const values = listOf(value);
  if (values.length > count) throw new TemplateError(`too many values to unpack (expected ${count})`);
  if (values.length < count)
    throw new TemplateError(`not enough values to unpack (expected ${count}, got ${values.length})`);
  return values;
}

function compileIf({ branches, otherwise }: Statement & { kind: 'if' }, settings: Settings): Run {
  const tests = branches.map(
    ({ test, body }) => [compileExpression(test, settings), compileBody(body, settings)] as const,
  );
  const last = compileBody(otherwise, settings);
  return (scope, output) => {
    for (const [test, run] of tests) if (isTrue(test(scope))) return run(scope, output);
    return last(scope, output);
  };
}

function compileFor(statement: ForStatement, settings: Settings): Run {
  const values = compileExpression(statement.iterable, settings);
  const assign = compileTarget(statement.target);
  const test = statement.test === undefined ? undefined : compileExpression(statement.test, settings);
  const body = compileBody(statement.body, settings);
  const otherwise = compileBody(statement.otherwise, settings);
  function* selected(scope: Scope, items: Value): Generator<Value, void, undefined> {
    for (const item of iterate(items)) {
      const inner = new Scope(scope);
      assign(inner, item);
      if (isTrue(test!(inner))) yield item;
    }
  }
  const start = (scope: Scope, items: Value, depth = 0, recurse?: Recurse): Loop =>
    test === undefined
      ? new Loop(iterate(items), sizeOf(items), depth, recurse)
      : new Loop(selected(scope, items), undefined, depth, recurse);
  const run = (scope: Scope, output: Output, loop: Loop): Ending => {
    let hasEnded: boolean = false;
    for (let item = loop.next(); item !== undefined; item = loop.next()) {
      const inner = new Scope(scope);
      inner.set('loop', loop);
      assign(inner, item);
      const ending = body(inner, output);
      // As in Jinja, the else part also runs if each iteration ended early.
      if (ending === undefined) hasEnded = true;
      if (ending === 'break') break;
    }
    return hasEnded ? undefined : otherwise(new Scope(scope), output);
  };
  if (!statement.isRecursive) return (scope, output) => run(scope, output, start(scope, values(scope)));
  return (scope, output) => {
    const recurse: Recurse = (items, depth) => {
      const inner = new Output();
      deeper(() => run(scope, inner, start(scope, items, depth, recurse)));
      return inner.text;
    };
    write(output, print(recurse(values(scope), 0)));
    return undefined;
  };
}

/** The text of a body, with its filters; the function takes it if no `break` or `continue` ended the body. */
function compileText(filter: FilterOf, body: Body, settings: Settings): TextRun {
  const run = compileBody(body, settings);
  const filtered = filter === undefined ? undefined : compileExpression(filter, settings);
  return (scope, take) => {
    const inner = new Scope(scope);
    const output = new Output();
    const ending = run(inner, output);
    if (ending !== undefined) return ending;
    const text = settings.escapes ? new Markup(output.text) : output.text;
    if (filtered === undefined) return take(text);
    inner.set(blockText, text);
    return take(filtered(inner));
  };
}

type TextRun = (scope: Scope, take: (value: Value) => Ending) => Ending;

/** Python allows about so many nested calls. */
const callsMax = 200;
let calls = 0;

function deeper<T>(run: () => T): T {
  if (calls >= callsMax) throw new TemplateError('maximum recursion depth exceeded');
  calls++;
  try {
    return run();
  } finally {
    calls--;
  }
}

function compileMacro(
  name: string | undefined,
  { names, defaults }: Signature,
  body: Body,
  settings: Settings,
): (scope: Scope) => Macro {
  const run = compileBody(body, { ...settings, isConditional: false });
  const read = namesIn(body);
  const reads = (special: string): boolean => read.has(special) && !names.includes(special);
  const shape: MacroShape = {
    name,
    parameters: names,
    readsCaller: read.has('caller'),
    readsNames: reads('kwargs'),
    readsItems: reads('varargs'),
  };
  const values = defaults.map((value) => compileExpression(value, settings));
  const firstDefault = names.length - defaults.length;
  const bind = (scope: Scope, bound: Bound): void => {
    for (const [parameter, value] of bound) {
      const fallback = (): Value => {
        const place = names.indexOf(parameter) - firstDefault;
        const make = place < 0 ? undefined : values[place];
        return make === undefined ? new Undefined(`parameter '${parameter}' was not provided`) : make(scope);
      };
      scope.set(parameter, orElse(value, fallback));
    }
  };
  return (outer) =>
    new Macro(shape, (bound) =>
      deeper(() => {
        const scope = new Scope(outer);
        const output = new Output();
        bind(scope, bound);
        run(scope, output);
        return output.text;
      }),
    );
}

function compileCallBlock({ call, signature, body }: Statement & { kind: 'call block' }, settings: Settings): Run {
  const make = compileMacro(undefined, signature, body, settings);
  const compile = (part: Parameters<typeof compileExpression>[0]): Evaluate => compileExpression(part, settings);
  const callee = compile(call.callee);
  const args = compileArguments(call.args, compile);
  return (scope, output) => {
    const { positional, named } = args(scope);
    const withCaller = { positional, named: new Map([...named, ['caller', make(scope)]]) };
    return write(output, print(callValue(callee(scope), withCaller)));
  };
}
