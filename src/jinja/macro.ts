import { TemplateError } from './errors.ts';
import { type Arguments, Dict, Thing, Tuple, Undefined, type Value } from './values.ts';

export interface MacroShape {
  /** Undefined: the body of a `call` block. */
  readonly name: string | undefined;
  readonly parameters: readonly string[];
  /** Which of the special names its body reads. */
  readonly readsCaller: boolean;
  readonly readsNames: boolean;
  readonly readsItems: boolean;
}

/** A parameter without an argument has the value undefined, so its default is used. */
export type Bound = ReadonlyMap<string, Value | undefined>;

/** A macro, or the `caller` of a `call` block. */
export class Macro extends Thing {
  readonly typeName = 'Macro';
  readonly #shape: MacroShape;
  readonly #run: (bound: Bound) => string;

  constructor(shape: MacroShape, run: (bound: Bound) => string) {
    super();
    this.#shape = shape;
    this.#run = run;
  }

  override get isCallable(): boolean {
    return true;
  }

  override attribute(name: string): Value | undefined {
    const { name: ownName, parameters, readsCaller, readsNames, readsItems } = this.#shape;
    switch (name) {
      case 'name':
        return ownName ?? null;
      case 'arguments':
        return new Tuple(parameters);
      case 'caller':
        return readsCaller;
      case 'catch_kwargs':
        return readsNames;
      case 'catch_varargs':
        return readsItems;
    }
    return undefined;
  }

  override toString(): string {
    return this.#shape.name === undefined ? '<Macro anonymous>' : `<Macro '${this.#shape.name}'>`;
  }

  override call(args: Arguments): Value {
    return this.#run(this.#bind(args));
  }

  #bind({ positional, named }: Arguments): Bound {
    const { parameters, readsCaller, readsNames, readsItems } = this.#shape;
    const rest = new Map(named);
    const take = (name: string): Value | undefined => {
      const value = rest.get(name);
      rest.delete(name);
      return value;
    };
    const bound = new Map<string, Value | undefined>();
    for (const [i, name] of parameters.entries()) bound.set(name, i < positional.length ? positional[i] : take(name));
    if (readsCaller && !parameters.includes('caller')) {
      bound.set('caller', take('caller') ?? new Undefined('No caller defined'));
    }
    if (readsNames) bound.set('kwargs', new Dict(rest));
    else this.#refuseNames(rest);
    if (readsItems) bound.set('varargs', new Tuple(positional.slice(parameters.length)));
    else if (positional.length > parameters.length) {
      throw new TemplateError(`macro ${this.#quoted} takes not more than ${parameters.length} argument(s)`);
    }
    return bound;
  }

  #refuseNames(rest: ReadonlyMap<string, Value>): void {
    if (rest.size === 0) return;
    if (!rest.has('caller')) {
      throw new TemplateError(`macro ${this.#quoted} takes no keyword argument '${[...rest.keys()][0]}'`);
    }
    throw new TemplateError(`macro ${this.#quoted} was invoked by a call block and does not use its caller`);
  }

  get #quoted(): string {
    return this.#shape.name === undefined ? 'None' : `'${this.#shape.name}'`;
  }
}
