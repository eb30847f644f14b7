import { bind, intOf, parameters } from './bind.ts';
import { RaisedError, TemplateError } from './errors.ts';
import { charge } from './meter.ts';
import { print } from './print.ts';
import { type Arguments, Callable, Dict, iterate, listOf, Namespace, Range, Thing, type Value } from './values.ts';

const rangeLengthMax = 100_000;

function range({ positional, named }: Arguments): Value {
  if (named.size > 0) throw new TemplateError('range() takes no keyword arguments');
  if (positional.length === 0) throw new TemplateError('range expected at least 1 argument, got 0');
  if (positional.length > 3) throw new TemplateError(`range expected at most 3 arguments, got ${positional.length}`);
  const numbers = positional.map((value) => {
    intOf(value);
    return BigInt(value as bigint);
  });
  const [start, stop] = numbers.length === 1 ? [0n, numbers[0]!] : [numbers[0]!, numbers[1]!];
  const step = numbers[2] ?? 1n;
  if (step === 0n) throw new TemplateError('range() arg 3 must not be zero');
  const result = new Range(start, stop, step);
  if (result.length > rangeLengthMax) {
    throw new TemplateError(`Range too big. The sandbox blocks ranges larger than MAX_RANGE (${rangeLengthMax}).`);
  }
  return result;
}

/** Python's `dict`: of a dict, of pairs, and of named values. */
function dict({ positional, named }: Arguments): Dict {
  if (positional.length > 1) throw new TemplateError(`dict expected at most 1 argument, got ${positional.length}`);
  const result = new Dict();
  const [given] = positional;
  if (given instanceof Dict) {
    charge(given.size);
    for (const [key, value] of given.entries()) result.set(key, value);
  } else if (given !== undefined) {
    for (const pair of iterate(given)) {
      const items = listOf(pair);
      if (items.length !== 2)
        throw new TemplateError(`dictionary update sequence element has length ${items.length}; 2 is required`);
      result.set(items[0]!, items[1]!);
    }
  }
  for (const [name, value] of named) result.set(name, value);
  return result;
}

function namespace(args: Arguments): Namespace {
  const entries = Array.from(dict(args).entries(), ([key, value]) => [print(key), value] as const);
  return new Namespace(new Map(entries));
}

/** Returns its separator, except for the first time. */
function joiner(args: Arguments): Value {
  const [separator = ', '] = bind('joiner', parameters('sep?'), args);
  let isUsed = false;
  return new Callable('joiner', () => {
    if (isUsed) return separator;
    isUsed = true;
    return '';
  });
}

class Cycler extends Thing {
  readonly typeName = 'Cycler';
  readonly #items: readonly Value[];
  #at = 0;

  constructor(items: readonly Value[]) {
    super();
    if (items.length === 0) throw new TemplateError('at least one item has to be provided');
    this.#items = items;
  }

  override attribute(name: string): Value | undefined {
    const current = this.#items[this.#at]!;
    if (name === 'current') return current;
    if (name === 'next') {
      return new Callable('next', () => {
        const item = this.#items[this.#at]!;
        this.#at = (this.#at + 1) % this.#items.length;
        return item;
      });
    }
    if (name !== 'reset') return undefined;
    return new Callable('reset', () => {
      this.#at = 0;
      return null;
    });
  }
}

function raise(args: Arguments): never {
  const [message] = bind('raise_exception', parameters('message'), args);
  throw new RaisedError(print(message!));
}

const functions: Readonly<Record<string, (args: Arguments) => Value>> = {
  range,
  dict,
  namespace,
  joiner,
  cycler: ({ positional }) => new Cycler(positional),
  raise_exception: raise,
};

/** The functions of all templates. */
export const globals: ReadonlyMap<string, Value> = new Map(
  Object.entries(functions).map(([name, run]) => [name, new Callable(name, run)]),
);
