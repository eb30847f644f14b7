import { namesOf, writeExactJson } from '../base/exact-json.ts';
import { Budget } from './budget.ts';
import {
  choice,
  type Expression,
  empty,
  type Grammar,
  nothing,
  optional,
  repeat,
  rule,
  sequence,
  text,
} from './expression.ts';
import { anyInteger, numberBetween } from './json-number.ts';
import { SchemaCompiler } from './json-schema.ts';
import { stringOfLength } from './json-text.ts';
import { isSchemaObject, type Schema } from './schema-keywords.ts';

/** How values are laid out. */
export interface JsonLayout {
  /** Behind brackets, and before closing brackets. */
  readonly space: Expression;
  readonly colon: Expression;
  readonly comma: Expression;
}

/** Sentences that a grammar keeps about what it does not keep. */
const notesMax = 20;

/** Collects the rules of a grammar that has JSON in it. Several schemas can share it: one tool has one schema. */
export class JsonGrammar {
  readonly rules = new Map<string, Expression>();
  readonly budget: Budget;
  readonly #layout: JsonLayout;
  readonly #shared = new Map<string, Expression>();
  readonly #notes = new Set<string>();
  #serial = 0;

  constructor(layout: JsonLayout, budget: Budget = new Budget()) {
    this.#layout = layout;
    this.budget = budget;
    this.#addValues();
  }

  /** Any JSON value of a type. */
  readonly value = rule('value');
  readonly object = rule('object');

  /**
   * Values that match the schema, as `readExactJson` reads it; not all of them. A strict schema allows none that does not
   * match. Otherwise, keywords that cannot be kept are left out, with a note.
   * @throws SchemaError or LimitError
   */
  schema(root: Schema, isStrict = false): Expression {
    return this.compiler(root, isStrict).compile(root);
  }

  /** For places of the schema one by one. */
  compiler(root: Schema, isStrict: boolean): SchemaCompiler {
    return new SchemaCompiler(root, this, isStrict);
  }

  /** A value of `const` or `enum`, with the white space of other values. */
  constant(value: unknown): Expression {
    if (Array.isArray(value)) {
      const [first, ...others] = value.map((item) => this.constant(item));
      const inside = first && sequence(first, ...others.flatMap((item) => [this.comma, item]));
      return this.enclosed('[', inside, ']');
    }
    if (!isSchemaObject(value)) return text(writeExactJson(value));
    const [first, ...others] = namesOf(value).map((name) =>
      this.member(text(JSON.stringify(name)), this.constant(value[name])),
    );
    const inside = first && sequence(first, ...others.flatMap((member) => [this.comma, member]));
    return this.enclosed('{', inside, '}');
  }

  toGrammar(root: Expression): Grammar {
    return { root, rules: this.rules, notes: this.notes };
  }

  get notes(): readonly string[] {
    return [...this.#notes];
  }

  /** A keyword that the grammar does not keep. */
  readonly note = (sentence: string): void => {
    if (this.#notes.size < notesMax) this.#notes.add(sentence);
  };

  newRule(expression: Expression): Expression {
    const declared = this.declareRule();
    this.rules.set(declared.name, expression);
    return declared;
  }

  /** A rule whose expression is set later. */
  declareRule(): Extract<Expression, { kind: 'rule' }> {
    const name = `#${++this.#serial}`;
    this.rules.set(name, nothing);
    return { kind: 'rule', name };
  }

  /** One rule for all uses of an expression. */
  readonly share = (key: string, make: () => Expression): Expression => {
    let shared = this.#shared.get(key);
    if (shared === undefined) {
      shared = this.newRule(make());
      this.#shared.set(key, shared);
    }
    return shared;
  };

  member(key: Expression, value: Expression): Expression {
    return sequence(key, this.#layout.colon, value);
  }

  enclosed(open: string, inside: Expression | undefined, close: string): Expression {
    const { space } = this.#layout;
    if (inside === undefined) return sequence(text(open), space, text(close));
    return sequence(text(open), space, inside, space, text(close));
  }

  /** `count` items are there at least, and `max` at most. */
  list(item: Expression, min: number, max: number): Expression {
    if (max === 0) return empty;
    const more = repeat(sequence(this.#layout.comma, item), Math.max(0, min - 1), max - 1);
    return min === 0 ? optional(sequence(item, more)) : sequence(item, more);
  }

  get comma(): Expression {
    return this.#layout.comma;
  }

  #addValues(): void {
    const string = rule('string');
    this.rules.set('string', stringOfLength(0, Infinity));
    this.rules.set('number', numberBetween({}));
    this.rules.set('integer', anyInteger);
    this.rules.set('boolean', choice(text('true'), text('false')));
    this.rules.set('object', this.#bracketed('{', this.member(string, this.value), '}'));
    this.rules.set('array', this.#bracketed('[', this.value, ']'));
    this.rules.set(
      'value',
      choice(this.object, rule('array'), string, rule('number'), text('true'), text('false'), text('null')),
    );
  }

  #bracketed(open: string, item: Expression, close: string): Expression {
    return choice(this.enclosed(open, undefined, close), this.enclosed(open, this.list(item, 1, Infinity), close));
  }
}
