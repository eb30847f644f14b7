import {
  type Body,
  type Branch,
  blockText,
  type Expression,
  type FilterOf,
  type Signature,
  type Statement,
  type Target,
} from './ast.ts';
import { tokenize } from './lexer.ts';
import { isConstant, parseExpression, parseFilter, parseTuple } from './parse-expression.ts';
import { TokenStream } from './token-stream.ts';

/** @throws TemplateSyntaxError */
export function parseTemplate(source: string): Body {
  return new Parser(new TokenStream(tokenize(source))).body([]);
}

class Parser {
  readonly #stream: TokenStream;
  readonly #blocks = new Set<string>();
  #loops = 0;

  constructor(stream: TokenStream) {
    this.#stream = stream;
  }

  /** Statements until a tag with one of these names, which stays; without names until the end. */
  body(ends: readonly string[]): Statement[] {
    const stream = this.#stream;
    const statements: Statement[] = [];
    for (;;) {
      const { kind, text } = stream.current;
      if (kind === 'eof') {
        if (ends.length === 0) return statements;
        throw stream.error(`the template ends before ${ends.map((end) => `'${end}'`).join(' or ')}`);
      }
      stream.next();
      if (kind === 'data') statements.push({ kind: 'text', text });
      else if (text === '{{') {
        statements.push({ kind: 'print', value: parseTuple(stream) });
        stream.expectEnd();
      } else {
        if (ends.some((end) => stream.isName(end))) return statements;
        statements.push(...this.#statement());
        stream.expectEnd();
      }
    }
  }

  /** The rest of the tag, and the statements until the end tag, whose name is read. */
  #block(...ends: readonly string[]): Body {
    this.#stream.skipOperator(':');
    this.#stream.expectEnd();
    return this.body(ends);
  }

  #blockUntil(end: string): Body {
    const body = this.#block(end);
    this.#stream.next();
    return body;
  }

  #statement(): readonly Statement[] {
    const tag = this.#stream.name();
    switch (tag) {
      case 'print':
        return this.#print();
      case 'set':
        return [this.#set()];
      case 'if':
        return [this.#if()];
      case 'for':
        return [this.#for()];
      case 'macro':
        return [this.#macro()];
      case 'call':
        return [this.#callBlock()];
      case 'filter':
        return [{ kind: 'filter block', filter: this.#filters(true), body: this.#blockUntil('endfilter') }];
      case 'with':
        return [this.#with()];
      case 'autoescape':
        return [{ kind: 'autoescape', isOn: parseExpression(this.#stream), body: this.#blockUntil('endautoescape') }];
      case 'generation':
        return [{ kind: 'scope', body: this.#functionBody('endgeneration') }];
      case 'block':
        return [this.#namedBlock()];
      case 'break':
      case 'continue':
        if (this.#loops === 0) throw this.#stream.error(`'${tag}' outside of a loop`);
        return [{ kind: tag }];
      case 'include':
      case 'import':
      case 'extends':
      case 'from':
        while (!this.#stream.isEnd()) this.#stream.next();
        return [{ kind: 'load' }];
      default:
        throw this.#stream.error(`unknown tag '${tag}'`);
    }
  }

  #print(): readonly Statement[] {
    const values: Expression[] = [];
    while (!this.#stream.isEnd()) {
      if (values.length > 0) this.#stream.expectOperator(',');
      values.push(parseExpression(this.#stream));
    }
    return values.map((value) => ({ kind: 'print', value }));
  }

  #set(): Statement {
    const target = this.#target({ hasFields: true });
    if (this.#stream.skipOperator('=')) return { kind: 'set', target, value: parseTuple(this.#stream) };
    const filter = this.#filters(false);
    return { kind: 'set block', target, filter, body: this.#blockUntil('endset') };
  }

  /** `isFirst`: no `|` before the first filter. */
  #filters(isFirst: boolean): FilterOf {
    // Parsed once, with a place for the text that the block makes.
    const place: Expression = { kind: 'name', name: blockText };
    let value: Expression = place;
    if (isFirst) value = parseFilter(this.#stream, value);
    while (this.#stream.skipOperator('|')) value = parseFilter(this.#stream, value);
    return value === place ? undefined : value;
  }

  #if(): Statement {
    const branches: Branch[] = [];
    for (;;) {
      const test = parseTuple(this.#stream, { hasConditions: false });
      branches.push({ test, body: this.#block('elif', 'else', 'endif') });
      const end = this.#stream.next().text;
      if (end === 'elif') continue;
      return { kind: 'if', branches, otherwise: end === 'else' ? this.#blockUntil('endif') : [] };
    }
  }

  #for(): Statement {
    const stream = this.#stream;
    const target = this.#target({ end: 'in' });
    stream.expectName('in');
    const iterable = parseTuple(stream, { hasConditions: false, isOver: () => stream.isName('recursive') });
    const test = stream.skipName('if') ? parseExpression(stream) : undefined;
    const isRecursive = stream.skipName('recursive');
    this.#loops++;
    const body = this.#block('endfor', 'else');
    this.#loops--;
    const otherwise = stream.next().text === 'else' ? this.#blockUntil('endfor') : [];
    return { kind: 'for', target, iterable, test, isRecursive, body, otherwise };
  }

  /** The body of a macro is no part of the loop around it. */
  #functionBody(end: string): Body {
    const loops = this.#loops;
    this.#loops = 0;
    const body = this.#blockUntil(end);
    this.#loops = loops;
    return body;
  }

  #macro(): Statement {
    const name = this.#newName();
    const signature = this.#signature();
    return { kind: 'macro', name, signature, body: this.#functionBody('endmacro') };
  }

  #callBlock(): Statement {
    const hasNames = this.#stream.isOperator('(');
    const signature = hasNames ? this.#signature() : { names: [], defaults: [] };
    const call = parseExpression(this.#stream);
    if (call.kind !== 'call') throw this.#stream.error('expected a call');
    return { kind: 'call block', call, signature, body: this.#functionBody('endcall') };
  }

  #signature(): Signature {
    const stream = this.#stream;
    const names: string[] = [];
    const defaults: Expression[] = [];
    stream.expectOperator('(');
    while (!stream.isOperator(')')) {
      if (names.length > 0) stream.expectOperator(',');
      names.push(this.#newName());
      if (stream.skipOperator('=')) defaults.push(parseExpression(stream));
      else if (defaults.length > 0) throw stream.error('non-default argument follows default argument');
    }
    stream.expectOperator(')');
    return { names, defaults };
  }

  #with(): Statement {
    const values: (readonly [Target, Expression])[] = [];
    while (!this.#stream.isEnd()) {
      if (values.length > 0) this.#stream.expectOperator(',');
      const target = this.#target({});
      this.#stream.expectOperator('=');
      values.push([target, parseExpression(this.#stream)]);
    }
    return { kind: 'with', values, body: this.#blockUntil('endwith') };
  }

  #namedBlock(): Statement {
    const name = this.#stream.name();
    if (this.#blocks.has(name)) throw this.#stream.error(`block '${name}' defined twice`);
    this.#blocks.add(name);
    const isScoped = this.#stream.skipName('scoped');
    this.#stream.skipName('required');
    const body = this.#functionBody('endblock');
    this.#stream.skipName(name);
    return { kind: 'block', name, isScoped, body };
  }

  #newName(): string {
    const name = this.#stream.name();
    if (isConstant(name)) throw this.#stream.error(`cannot assign to '${name}'`);
    return name;
  }

  /** One target, or several between commas, with or without parentheses. */
  #target({ end, hasFields = false }: TargetOptions): Target {
    const stream = this.#stream;
    const targets: Target[] = [];
    let isTuple = false;
    for (;;) {
      if (targets.length > 0) stream.expectOperator(',');
      const isOver = stream.isEnd() || stream.isOperator(')') || stream.isOperator('=');
      if (isOver || (end !== undefined && stream.isName(end))) break;
      targets.push(this.#oneTarget(hasFields));
      if (!stream.isOperator(',')) break;
      isTuple = true;
    }
    const [only] = targets;
    if (only === undefined) throw stream.unexpected('a name');
    return isTuple ? { kind: 'targets', targets } : only;
  }

  #oneTarget(hasFields: boolean): Target {
    const stream = this.#stream;
    if (stream.skipOperator('(')) {
      const target = this.#target({});
      stream.expectOperator(')');
      return target;
    }
    const name = this.#newName();
    if (!hasFields || !stream.skipOperator('.')) return { kind: 'name', name };
    return { kind: 'field', object: name, name: stream.name() };
  }
}

interface TargetOptions {
  /** A word that ends the targets. */
  readonly end?: string;
  readonly hasFields?: boolean;
}
