/**
 * The reason why there is no library; the caller works without it. `isAvoidable`: this machine could have the library,
 * so an operator should know. A machine without a compiler, a CPU without the instructions or a model with other shapes
 * could not.
 */
export class CompileFailure extends Error {
  readonly isAvoidable: boolean;

  constructor(message: string, { isAvoidable = false }: { readonly isAvoidable?: boolean } = {}) {
    super(message);
    this.isAvoidable = isAvoidable;
  }
}
