import type { FieldObserver, FieldShape } from '../../base/field-reader.ts';

/** A JSON schema. */
export interface Schema {
  readonly [keyword: string]: unknown;
}

/** Collects what readers of a body look for, and describes it as a schema. A field that is null counts as absent. */
export class FieldSchema {
  readonly #root: Node = new Node();

  readonly observer: FieldObserver = (path, shape) => {
    const names = path.replace(/\[\d+\]/g, '.[]').split('.');
    const field = names.pop()!;
    const around = names.reduce((at, name) => at.inside(name), this.#root);
    around.note(field, path.slice(0, path.length - field.length), shape);
  };

  get schema(): Schema {
    return this.#root.schema('object');
  }
}

class Node {
  readonly #inside = new Map<string, Node>();
  #shape: FieldShape = {};
  /** The objects of the example that are described here: items of a list are several. */
  readonly #objects = new Set<string>();
  readonly #requiredIn = new Set<string>();
  /** The reader has looked at the value before it read it in one form. */
  #hasForms: boolean | undefined;

  inside(name: string): Node {
    const known = this.#inside.get(name);
    if (known !== undefined) return known;
    const node = new Node();
    this.#inside.set(name, node);
    return node;
  }

  /** `object`: the path of the object that has the field. */
  note(field: string, object: string, shape: FieldShape): void {
    const node = this.inside(field);
    this.#objects.add(object);
    if (shape.required === true) node.#requiredIn.add(object);
    node.#add(shape);
  }

  #add({ required: _, ...shape }: FieldShape): void {
    this.#hasForms ??= Object.keys(shape).length === 0;
    if (!this.#hasForms) this.#shape = { ...this.#shape, ...shape };
  }

  schema(ofRoot?: 'object', isRequired = ofRoot !== undefined): Schema {
    const { enum: choices, ...shape } = this.#shape;
    const items = this.#inside.get('[]');
    const fields = [...this.#inside].filter(([name]) => name !== '[]');
    // A field that only some items of a list must have belongs to their form.
    const isNeeded = (node: Node): boolean => node.#requiredIn.size === this.#objects.size;
    const required = fields.filter(([, node]) => isNeeded(node)).map(([name]) => name);
    // Fields inside of a value without a type are those of one of its forms.
    const type = ofRoot ?? shape.type;
    return {
      ...shape,
      ...(type === undefined ? {} : { type: isRequired ? type : [type, 'null'] }),
      ...(choices === undefined ? {} : { enum: isRequired ? choices : [...choices, null] }),
      ...(items === undefined ? {} : { items: items.#itemSchema() }),
      ...(fields.length === 0
        ? {}
        : {
            properties: Object.fromEntries(
              fields.map(([name, node]) => [name, node.schema(undefined, isNeeded(node))]),
            ),
          }),
      ...(required.length === 0 ? {} : { required }),
    };
  }

  #itemSchema(): Schema {
    return this.schema(this.#inside.size > 0 ? 'object' : undefined);
  }
}
