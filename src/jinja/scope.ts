import { orElse, Undefined, type Value } from './values.ts';

/** Names that a part of a template has set. Loops, macros and blocks have scopes of their own. */
export class Scope {
  readonly parent: Scope | undefined;
  readonly #values = new Map<string, Value>();

  constructor(parent: Scope | undefined) {
    this.parent = parent;
  }

  set(name: string, value: Value): void {
    this.#values.set(name, value);
  }

  find(name: string): Value | undefined {
    let scope: Scope | undefined = this;
    while (scope !== undefined) {
      const value = scope.#values.get(name);
      if (value !== undefined) return value;
      scope = scope.parent;
    }
    return undefined;
  }

  get(name: string): Value {
    return orElse(this.find(name), () => new Undefined(`'${name}' is undefined`));
  }

  /** The scope of the template's top level, which its blocks see. */
  get top(): Scope {
    let scope: Scope = this;
    while (scope.parent?.parent !== undefined) scope = scope.parent;
    return scope;
  }
}

/** The text that a template has made so far. */
export class Output {
  text = '';
}
