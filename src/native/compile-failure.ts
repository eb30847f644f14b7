/**
 * The reason why there is no library; the caller works without it. `isAvoidable`: this machine could have the library,
 * so an operator should know. A CPU without the instructions or a model with other shapes could not.
 * `needsCompiler`: the package lacks the library, and there is no C compiler. The reason is the same for all libraries.
 */
export class CompileFailure extends Error {
  readonly isAvoidable: boolean;
  readonly needsCompiler: boolean;

  constructor(message: string, { isAvoidable = false, needsCompiler = false }: Partial<CompileFailureTraits> = {}) {
    super(message);
    this.isAvoidable = isAvoidable;
    this.needsCompiler = needsCompiler;
  }
}

type CompileFailureTraits = Pick<CompileFailure, 'isAvoidable' | 'needsCompiler'>;
