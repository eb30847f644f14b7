import { equals } from './compare.ts';
import { TemplateError } from './errors.ts';
import {
  type Arguments,
  Callable,
  Dict,
  DictView,
  isList,
  isText,
  lengthOf,
  orElse,
  Range,
  Thing,
  Tuple,
  Undefined,
  type Value,
} from './values.ts';

/** The variable `loop` of a `for`. The next item is read early only if the template asks for it. */
export class Loop extends Thing {
  readonly typeName = 'LoopContext';
  #items: Iterator<Value, unknown, undefined>;
  readonly #depth: number;
  readonly #recurse: Recurse | undefined;
  /** Read, and not yet given: undefined if the items are over. */
  #ahead: { readonly item: Value | undefined } | undefined;
  #index = -1;
  #length: number | undefined;
  #before: Value | undefined;
  #current: Value | undefined;
  #changed: Tuple | undefined;

  /** `size`: of the items if it is known without reading them. */
  constructor(items: Iterable<Value>, size: number | undefined, depth: number, recurse: Recurse | undefined) {
    super();
    this.#items = items[Symbol.iterator]();
    this.#length = size;
    this.#depth = depth;
    this.#recurse = recurse;
  }

  /** The next item; undefined after the last one. */
  next(): Value | undefined {
    const item = this.#peek();
    this.#ahead = undefined;
    if (item === undefined) return undefined;
    this.#index++;
    this.#before = this.#current;
    this.#current = item;
    return item;
  }

  #peek(): Value | undefined {
    if (this.#ahead === undefined) {
      const { done, value } = this.#items.next();
      this.#ahead = { item: done === true ? undefined : (value as Value) };
    }
    return this.#ahead.item;
  }

  /** Reads the rest if the number of items is not known. */
  #size(): number {
    if (this.#length === undefined) {
      const isAhead = this.#ahead?.item !== undefined;
      const rest: Value[] = [];
      for (let next = this.#items.next(); next.done !== true; next = this.#items.next()) rest.push(next.value);
      this.#items = rest.values();
      this.#length = this.#index + 1 + (isAhead ? 1 : 0) + rest.length;
    }
    return this.#length;
  }

  override attribute(name: string): Value | undefined {
    switch (name) {
      case 'index':
        return BigInt(this.#index + 1);
      case 'index0':
        return BigInt(this.#index);
      case 'revindex':
        return BigInt(this.#size() - this.#index);
      case 'revindex0':
        return BigInt(this.#size() - this.#index - 1);
      case 'first':
        return this.#index === 0;
      case 'last':
        return this.#peek() === undefined;
      case 'length':
        return BigInt(this.#size());
      case 'depth':
        return BigInt(this.#depth + 1);
      case 'depth0':
        return BigInt(this.#depth);
      case 'previtem':
        return orElse(this.#before, () => new Undefined('there is no previous item'));
      case 'nextitem':
        return orElse(this.#peek(), () => new Undefined('there is no next item'));
      case 'cycle':
        return new Callable('cycle', ({ positional }) => this.#cycle(positional));
      case 'changed':
        return new Callable('changed', ({ positional }) => this.#hasChanged(new Tuple(positional)));
    }
    return undefined;
  }

  #cycle(items: readonly Value[]): Value {
    if (items.length === 0) throw new TemplateError('no items for cycling given');
    return items[this.#index % items.length]!;
  }

  #hasChanged(value: Tuple): boolean {
    if (this.#changed !== undefined && equals(this.#changed, value)) return false;
    this.#changed = value;
    return true;
  }

  override get isCallable(): boolean {
    return true;
  }

  /** Runs a recursive loop over other items. */
  override call({ positional: [items] }: Arguments): Value {
    if (this.#recurse === undefined || items === undefined) {
      throw new TemplateError("The loop must have the 'recursive' marker to be called recursively.");
    }
    return this.#recurse(items, this.#depth + 1);
  }
}

export type Recurse = (items: Value, depth: number) => Value;

/** The number of items, if Python's `len` knows it. */
export function sizeOf(value: Value): number | undefined {
  const isSized =
    isList(value) ||
    isText(value) ||
    value instanceof Tuple ||
    value instanceof Dict ||
    value instanceof DictView ||
    value instanceof Range ||
    value instanceof Undefined;
  return isSized ? lengthOf(value) : undefined;
}
