import { isNumber } from './decimal.ts';

/** A schema that `$ref` names, and its place in the schema. */
export interface Target {
  readonly schema: unknown;
  readonly path: string;
}

type Node = Readonly<Record<string, unknown>>;

/** A schema with an `$id` of its own, or the whole. */
interface Resource {
  readonly schema: Node;
  readonly url: string;
  readonly anchors: Map<string, Node>;
}

/** Relative names are resolved against it. It names nothing. */
const base = 'schema://whole/';

/**
 * The references of one schema, as in JSON Schema 2020-12, 8.2: `#/a/b` and `#anchor` begin at the nearest schema around them that has an
 * `$id`, and other names are those of such schemas. Nothing outside of the schema is read.
 */
export class SchemaReferences {
  readonly #root: Resource;
  readonly #resources = new Map<string, Resource>();
  /** The resource of each schema that is not in the root's. */
  readonly #inner = new WeakMap<object, Resource>();

  constructor(root: Node) {
    this.#root = this.#find(root);
  }

  /** What a reference names that stands in `from`; undefined: nothing. */
  target(reference: string, from: object): Target | undefined {
    const inner = this.#inner.get(from);
    const found = this.#targetFrom(reference, inner ?? this.#root);
    // Definitions that a library has copied keep references to the root.
    return found ?? (inner === undefined ? undefined : this.#targetFrom(reference, this.#root));
  }

  #targetFrom(reference: string, from: Resource): Target | undefined {
    const at = reference.indexOf('#');
    const name = at === -1 ? reference : reference.slice(0, at);
    const fragment = at === -1 ? '' : decoded(reference.slice(at + 1));
    const resource = name === '' ? from : this.#resources.get(absolute(name, from.url));
    if (resource === undefined) return undefined;
    const path = `${resource === this.#root ? '' : name}#${fragment}`;
    if (fragment === '') return { schema: resource.schema, path };
    const anchored = resource.anchors.get(fragment);
    if (anchored !== undefined) return { schema: anchored, path };
    if (!fragment.startsWith('/')) return undefined;
    let found: unknown = resource.schema;
    for (const part of fragment.split('/').slice(1)) {
      const key = part.replaceAll('~1', '/').replaceAll('~0', '~');
      if (typeof found !== 'object' || found === null || !Object.hasOwn(found, key)) return undefined;
      found = (found as Node)[key];
    }
    return { schema: found, path };
  }

  /** Finds names in all of the schema. Without recursion, because schemas can be deep. */
  #find(root: Node): Resource {
    const whole = this.#resource(root, base);
    const open: { readonly value: unknown; readonly inside: Resource }[] = [{ value: root, inside: whole }];
    for (let next = open.pop(); next !== undefined; next = open.pop()) {
      const { value, inside } = next;
      if (typeof value !== 'object' || value === null || isNumber(value)) continue;
      let resource = inside;
      if (!Array.isArray(value)) {
        const { $id, $anchor } = value as Node;
        if (value !== root && typeof $id === 'string') resource = this.#resource(value as Node, inside.url);
        if (resource !== whole) this.#inner.set(value, resource);
        if (typeof $anchor === 'string') resource.anchors.set($anchor, value as Node);
      }
      for (const child of Object.values(value)) open.push({ value: child, inside: resource });
    }
    return whole;
  }

  #resource(schema: Node, around: string): Resource {
    const url = typeof schema.$id === 'string' ? absolute(schema.$id, around) : around;
    const resource = { schema, url, anchors: new Map<string, Node>() };
    if (!this.#resources.has(url)) this.#resources.set(url, resource);
    return resource;
  }
}

function absolute(name: string, around: string): string {
  try {
    return new URL(name.replace(/#$/, ''), around).href;
  } catch {
    return name;
  }
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
