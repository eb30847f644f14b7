import { byEntries } from '../../base/by-name.ts';
import type { FieldObserver, FieldShape } from '../../base/field-reader.ts';

/** A JSON schema. */
export interface Schema {
  readonly [keyword: string]: unknown;
}

/** Collects what readers of bodies look for, and describes it as a schema. A field that is null counts as absent. */
export class FieldSchema {
  readonly #root: Node = new Node();

  /** For the readers of one body. `body`: its number. A field that not all bodies need is not required. */
  observer(body: number): FieldObserver {
    return (path, shape) => {
      const names = path.replace(/\[\d+\]/g, '.[]').split('.');
      const field = names.pop()!;
      const around = names.reduce((at, name) => at.inside(name), this.#root);
      around.note(field, `${body}:${path.slice(0, path.length - field.length)}`, shape);
    };
  }

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
    if (this.#hasForms === undefined) {
      this.#hasForms = shape.anyOf !== undefined || Object.keys(shape).length === 0;
      this.#shape = shape;
    } else if (!this.#hasForms) this.#shape = { ...this.#shape, ...shape };
  }

  schema(ofRoot?: 'object', isRequired = ofRoot !== undefined): Schema {
    const { anyOf: forms } = this.#shape;
    if (forms !== undefined) {
      const nothing = isRequired ? [] : [{ type: 'null' }];
      return { anyOf: [...forms.map((form) => this.#form(form, true)), ...nothing] };
    }
    return this.#form(ofRoot === undefined ? this.#shape : { ...this.#shape, type: ofRoot }, isRequired);
  }

  /** One shape of the value, with what was found in it. */
  #form({ enum: choices, type, items: itemShape, ...shape }: FieldShape, isRequired: boolean): Schema {
    const ofItems = this.#inside.get('[]');
    const items = type === 'array' ? (ofItems === undefined ? (itemShape ?? {}) : ofItems.#itemSchema()) : undefined;
    const fields = type === 'object' ? [...this.#inside].filter(([name]) => name !== '[]') : [];
    // A field that only some items of a list must have belongs to their form.
    const isNeeded = (node: Node): boolean => node.#requiredIn.size === this.#objects.size;
    const required = fields.filter(([, node]) => isNeeded(node)).map(([name]) => name);
    return {
      ...shape,
      ...(type === undefined ? {} : { type: isRequired ? type : [type, 'null'] }),
      ...(choices === undefined ? {} : { enum: isRequired ? choices : [...choices, null] }),
      ...(items === undefined ? {} : { items }),
      ...(fields.length === 0
        ? {}
        : {
            properties: byEntries(fields.map(([name, node]) => [name, node.schema(undefined, isNeeded(node))])),
          }),
      ...(required.length === 0 ? {} : { required }),
    };
  }

  #itemSchema(): Schema {
    return this.schema(this.#inside.size > 0 ? 'object' : undefined, true);
  }
}
