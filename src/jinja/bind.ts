import { TemplateError } from './errors.ts';
import { charge } from './meter.ts';
import { type Arguments, isText, textOf, typeName, type Value } from './values.ts';

/** The parameters of a function: their names, and how many must be given. */
export interface Parameters {
  readonly names: readonly string[];
  readonly required: number;
}

/** The arguments by position, as Python binds them. An argument that is not given is undefined. */
export function bind(name: string, { names, required }: Parameters, args: Arguments): (Value | undefined)[] {
  const { positional, named } = args;
  if (positional.length > names.length) {
    throw new TemplateError(`${name}() takes at most ${names.length} arguments (${positional.length} given)`);
  }
  const bound: (Value | undefined)[] = [...positional];
  for (const value of positional) chargeReading(value);
  for (const [key, value] of named) {
    const place = names.indexOf(key);
    if (place < 0) throw new TemplateError(`${name}() got an unexpected keyword argument '${key}'`);
    if (bound[place] !== undefined) throw new TemplateError(`${name}() got multiple values for argument '${key}'`);
    chargeReading(value);
    bound[place] = value;
  }
  for (let i = 0; i < required; i++) {
    if (bound[i] === undefined) throw new TemplateError(`${name}() missing required argument: '${names[i]}'`);
  }
  return bound;
}

/** Nearly all functions read their texts once. */
export function chargeReading(value: Value): void {
  if (isText(value)) charge(textOf(value).length / 16);
}

/** `'a b? c?'`: names of parameters, of which those with a question mark may be missing. */
export function parameters(text: string): Parameters {
  const all = text.split(' ').filter((name) => name !== '');
  return {
    names: all.map((name) => name.replace('?', '')),
    required: all.filter((name) => !name.endsWith('?')).length,
  };
}

export const noArguments: Arguments = { positional: [], named: new Map() };

export function intOf(value: Value): number {
  if (typeof value === 'boolean') return Number(value);
  if (typeof value !== 'bigint')
    throw new TemplateError(`'${typeName(value)}' object cannot be interpreted as an integer`);
  return Number(value);
}
