/** A bug of this package, not an error of its environment. Code must not catch it and continue. */
export class AssertionError extends Error {
  override readonly name = 'AssertionError';
}

/**
 * States a condition that must be true. Always on in the control plane: a violated invariant must throw before it can
 * cause a wrong token. Do not use it in loops over elements.
 */
export function assert(condition: boolean, message: string): asserts condition {
  if (!condition) throw new AssertionError(message);
}

/** Returns the value; throws if it is missing although the surrounding code guarantees it. */
export function assertDefined<T>(value: T | undefined | null, message: string): T {
  if (value === undefined || value === null) throw new AssertionError(message);
  return value;
}

/** For a branch that the types exclude: an unhandled new member of a union then fails to compile. */
export function assertNever(value: never): never {
  throw new AssertionError(`unreachable: ${String(value)}`);
}
