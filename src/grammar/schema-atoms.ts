import { namesOf } from '../base/exact-json.ts';
import {
  isSchemaObject,
  listOf,
  namesIn,
  neverSupported,
  objectOf,
  pointer,
  type Schema,
  SchemaError,
  type SchemaObject,
  schemaAt,
} from './schema-keywords.ts';
import { annotations, type Facts, type Link, negationOf } from './schema-negation.ts';
import { oneOfBranch } from './schema-one-of.ts';
import { Outlines } from './schema-outline.ts';
import { SchemaReferences } from './schema-references.ts';

/** Keywords of one schema object that speak of the value itself, or facts that follow from other keywords. */
export interface Plain {
  readonly kind: 'plain';
  readonly id: number;
  readonly schema: SchemaObject;
  readonly path: string;
  /** Schemas with `unevaluated...` that this one is a part of, by their ids. */
  readonly owners: readonly number[];
  readonly facts: Facts | undefined;
}

/** The value matches all schemas of one of the options. */
export interface Branch {
  readonly kind: 'branch';
  readonly id: number;
  readonly options: readonly (readonly Conjunct[])[];
  readonly path: string;
}

export type Conjunct = Link | Plain | Branch;

/** What a value must match, with `$ref`, `allOf` and `not` resolved. Equal objects are the same requirement. */
export interface Requirements {
  readonly plain: readonly Plain[];
  readonly branches: readonly Branch[];
}

/** A keyword that the grammar does not keep. Throws SchemaError if the schema is strict. */
export type Report = (path: string, problem: string) => void;

const applicators = new Set([
  ...['$ref', 'allOf', 'anyOf', 'oneOf', 'not', 'if', 'then', 'else'],
  ...['dependentRequired', 'dependentSchemas', 'dependencies'],
]);

/**
 * Resolves the keywords that combine schemas. A value at one place must match several schemas at once: each is an atom,
 * and a set of atoms is compiled once, however many combinations lead to it.
 */
export class SchemaAtoms {
  readonly report: Report;
  readonly outlines: Outlines;
  readonly #references: SchemaReferences | undefined;
  readonly #schemaIds = new WeakMap<object, number>();
  readonly #parts = new Map<string, readonly Conjunct[] | false>();
  readonly #spend: (steps: number) => void;
  #ids = 0;

  /** `spend` is called with the steps that each resolution takes. */
  constructor(root: Schema, report: Report, spend: (steps: number) => void) {
    this.#references = isSchemaObject(root) ? new SchemaReferences(root) : undefined;
    this.report = report;
    this.#spend = spend;
    this.outlines = new Outlines(this, spend);
  }

  link(value: unknown, path: string, owners: readonly number[] = []): Link {
    return { kind: 'schema', schema: schemaAt(value, path), path, owners };
  }

  idOf(schema: object): number {
    let id = this.#schemaIds.get(schema);
    if (id === undefined) {
      id = ++this.#ids;
      this.#schemaIds.set(schema, id);
    }
    return id;
  }

  plain(schema: SchemaObject, path: string, facts?: Facts, owners: readonly number[] = []): Plain {
    return { kind: 'plain', id: ++this.#ids, schema, path, owners, facts };
  }

  branch(options: readonly (readonly Conjunct[])[], path: string): Branch {
    return { kind: 'branch', id: ++this.#ids, options, path };
  }

  /** Undefined: no value matches. */
  resolve(conjuncts: readonly Conjunct[]): Requirements | undefined {
    const plain = new Map<number, Plain>();
    const branches = new Map<number, Branch>();
    const visited = new Set<string>();
    const open = new Set<string>();
    this.#spend(1 + conjuncts.length / 4);
    const stack: (Conjunct | { readonly kind: 'end'; readonly key: string })[] = [...conjuncts].reverse();
    for (let item = stack.pop(); item !== undefined; item = stack.pop()) {
      if (item.kind === 'end') open.delete(item.key);
      else if (item.kind === 'plain') plain.set(item.id, item);
      else if (item.kind === 'branch') branches.set(item.id, item);
      else {
        if (item.schema === (item.kind === 'schema')) continue;
        if (typeof item.schema === 'boolean') return undefined;
        const key = this.#keyOf(item, item.schema);
        if (open.has(key)) throw new SchemaError(item.path, 'the schema refers to itself without end');
        if (visited.has(key)) continue;
        visited.add(key);
        this.#spend(2);
        const parts = this.#partsOf(item, item.schema, key);
        if (parts === false) return undefined;
        open.add(key);
        stack.push({ kind: 'end', key }, ...[...parts].reverse());
      }
    }
    return { plain: [...plain.values()], branches: [...branches.values()] };
  }

  #keyOf({ kind, owners }: Link, schema: SchemaObject): string {
    return `${kind}:${this.idOf(schema)}:${owners.join('.')}`;
  }

  /** False: no value matches. */
  #partsOf(link: Link, schema: SchemaObject, key: string): readonly Conjunct[] | false {
    let parts = this.#parts.get(key);
    if (parts === undefined) {
      parts = link.kind === 'not' ? negationOf(link, schema, this) : this.#expand(link, schema);
      this.#parts.set(key, parts);
    }
    return parts;
  }

  #expand({ path, owners }: Link, schema: SchemaObject): readonly Conjunct[] {
    for (const keyword of neverSupported) {
      if (schema[keyword] !== undefined)
        this.report(pointer(path, keyword), `the keyword \`${keyword}\` is not supported`);
    }
    const hasRest = schema.unevaluatedProperties !== undefined || schema.unevaluatedItems !== undefined;
    const inner = hasRest ? [...owners, this.idOf(schema)] : owners;
    const parts: Conjunct[] = [];
    if (schema.$ref !== undefined) parts.push({ kind: 'schema', owners: inner, ...this.targetOf(schema, path) });
    const hasOwn = Object.keys(schema).some((name) => !annotations.has(name) && !applicators.has(name));
    if (hasOwn) parts.push(this.plain(schema, path, undefined, inner));
    for (const [i, part] of (listOf(schema, 'allOf', path) ?? []).entries()) {
      parts.push(this.link(part, pointer(pointer(path, 'allOf'), i), inner));
    }
    const options = listOf(schema, 'anyOf', path)?.map((option, i) => [
      this.link(option, pointer(pointer(path, 'anyOf'), i), inner),
    ]);
    if (options !== undefined) parts.push(this.branch(options, pointer(path, 'anyOf')));
    const choices = listOf(schema, 'oneOf', path)?.map((option, i) =>
      this.link(option, pointer(pointer(path, 'oneOf'), i), inner),
    );
    if (choices !== undefined) parts.push(oneOfBranch(choices, pointer(path, 'oneOf'), this));
    if (schema.not !== undefined) {
      const place = pointer(path, 'not');
      parts.push({ kind: 'not', schema: schemaAt(schema.not, place), path: place, owners: [] });
    }
    return [...parts, ...this.#conditions(schema, path, inner), ...this.#dependencies(schema, path, inner)];
  }

  #conditions(schema: SchemaObject, path: string, owners: readonly number[]): Conjunct[] {
    if (schema.if === undefined || (schema.then === undefined && schema.else === undefined)) return [];
    const place = pointer(path, 'if');
    const condition = this.link(schema.if, place, owners);
    const consequence = this.link(schema.then ?? true, pointer(path, 'then'), owners);
    const alternative = this.link(schema.else ?? true, pointer(path, 'else'), owners);
    const opposite: Link = { kind: 'not', schema: condition.schema, path: place, owners: [] };
    return [
      this.branch(
        [
          [condition, consequence],
          [opposite, alternative],
        ],
        place,
      ),
    ];
  }

  #dependencies(schema: SchemaObject, path: string, owners: readonly number[]): Conjunct[] {
    return ['dependentRequired', 'dependentSchemas', 'dependencies'].flatMap((keyword) => {
      const map = objectOf(schema, keyword, path);
      return namesOf(map).map((name) => {
        const place = pointer(path, keyword);
        const absent = this.plain({}, place, { absent: [name] });
        const value = map[name];
        const names = Array.isArray(value) ? namesIn(map, name, place) : [];
        const present = this.plain({ required: [name, ...names] }, place);
        const others = Array.isArray(value) ? [] : [this.link(value, pointer(place, name), owners)];
        return this.branch([[present, ...others], [absent]], place);
      });
    });
  }

  /** What `$ref` names. */
  targetOf(schema: SchemaObject, path: string): { readonly schema: Schema; readonly path: string } {
    const { $ref: reference } = schema;
    const place = pointer(path, '$ref');
    if (typeof reference !== 'string') throw new SchemaError(place, 'expected a text');
    const target = this.#references?.target(reference, schema);
    if (target !== undefined) return { schema: schemaAt(target.schema, target.path), path: target.path };
    throw new SchemaError(
      place,
      reference.startsWith('#')
        ? `the schema has no ${JSON.stringify(reference.slice(0, 100))}`
        : 'only references inside of the schema (`#/...`, or the `$id` of one of its parts) are supported',
    );
  }
}
