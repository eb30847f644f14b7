import type { Body, Statement } from './ast.ts';
import { compileBody, type Run } from './compile-statement.ts';
import { TemplateError, TemplateSyntaxError } from './errors.ts';
import { ValueReader } from './from-json.ts';
import { globals } from './globals.ts';
import { library } from './library.ts';
import { withWork } from './meter.ts';
import { parseTemplate } from './parser.ts';
import { Output, Scope } from './scope.ts';
import { Callable, Thing, type Value } from './values.ts';
import { eachStatement } from './walk.ts';

export interface Template {
  /**
   * The text for these variables, which are JSON values; an `ExactNumber` keeps all its digits.
   * @throws TemplateError. `RaisedError` if the template asks for it.
   */
  render(variables: Readonly<Record<string, unknown>>, options?: TemplateOptions): string;
}

export interface TemplateOptions {
  /** Functions that the template can call with one text. */
  readonly functions?: Readonly<Record<string, (text: string) => string>>;
  /** Limits the work. Default: in proportion to the variables. */
  readonly work?: number | undefined;
}

/**
 * What a rendering may cost, in evaluated expressions: so much for any input, and more for each value and character of it. The
 * templates of models need up to 150 per message.
 */
const workForAll = 2_000_000;
const workPerValue = 500;
const workPerCharacter = 4;

/**
 * A template of Jinja, as transformers renders chat templates: Python's values and methods, `trim_blocks`, `lstrip_blocks`, loop
 * controls, no changes of lists and dicts.
 * @throws TemplateSyntaxError
 */
export function compileTemplate(source: string): Template {
  // Compiling takes time in proportion to the source.
  const { run, blocks } = withWork(Number.POSITIVE_INFINITY, () => compiled(source));
  return {
    render(variables, { functions = {}, work } = {}) {
      const context = new Scope(undefined);
      const allowed = withWork(Number.POSITIVE_INFINITY, () => fill(context, variables, functions));
      const scope = new Scope(context);
      if (blocks.size > 0) context.set('self', new Blocks(blocks, scope));
      return withWork(work ?? allowed, () => rendered(run, scope));
    },
  };
}

function compiled(source: string) {
  try {
    const body = parseTemplate(source);
    const settings = { library, escapes: false, isConditional: false };
    const blocks = blocksOf(body).map(({ name, body: inner }) => [name, compileBody(inner, settings)] as const);
    return { run: compileBody(body, settings), blocks: new Map(blocks) };
  } catch (error) {
    // Each level of a template is a call of the parser and of the compiler.
    if (error instanceof RangeError) throw new TemplateSyntaxError('too many nested levels', 1);
    throw error;
  }
}

/** Sets the names that a template can read. Returns what a rendering with these variables may cost. */
function fill(
  context: Scope,
  variables: Readonly<Record<string, unknown>>,
  functions: NonNullable<TemplateOptions['functions']>,
): number {
  const reader = new ValueReader();
  for (const [name, value] of globals) context.set(name, value);
  for (const [name, call] of Object.entries(functions)) context.set(name, textFunction(name, call));
  for (const [name, value] of Object.entries(variables)) {
    if (value !== undefined) context.set(name, reader.read(value));
  }
  return workForAll + reader.values * workPerValue + reader.characters * workPerCharacter;
}

function rendered(run: Run, scope: Scope): string {
  const output = new Output();
  try {
    run(scope, output);
  } catch (error) {
    // The stack is full, or a text is longer than JavaScript allows.
    if (error instanceof RangeError) throw new TemplateError(`the template needs too much: ${error.message}`);
    throw error;
  }
  return output.text;
}

const textFunction = (name: string, call: (text: string) => string): Callable =>
  new Callable(name, ({ positional: [text] }) => {
    if (typeof text !== 'string') throw new TemplateError(`${name}() needs a text`);
    return call(text);
  });

type NamedBlock = Statement & { readonly kind: 'block' };

function blocksOf(body: Body): NamedBlock[] {
  const blocks: NamedBlock[] = [];
  eachStatement(body, (statement) => {
    if (statement.kind === 'block') blocks.push(statement);
  });
  return blocks;
}

/** The variable `self`: the blocks of the template as functions. */
class Blocks extends Thing {
  readonly typeName = 'TemplateReference';
  readonly #blocks: ReadonlyMap<string, Run>;
  readonly #scope: Scope;

  constructor(blocks: ReadonlyMap<string, Run>, scope: Scope) {
    super();
    this.#blocks = blocks;
    this.#scope = scope;
  }

  override attribute(name: string): Value | undefined {
    const run = this.#blocks.get(name);
    if (run === undefined) return undefined;
    return new Callable(name, () => {
      const output = new Output();
      run(new Scope(this.#scope), output);
      return output.text;
    });
  }
}
