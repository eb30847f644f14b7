/** Our own bug, never the world's fault: it is thrown by an assertion and nobody catches it to go on. */
export class AssertionError extends Error {
  override readonly name = 'AssertionError';
}

/**
 * States what must be true here. Always on in the control plane: a broken invariant must crash loudly
 * before it can become a wrong token. Keep it out of per-element loops.
 */
export function assert(condition: boolean, message: string): asserts condition {
  if (!condition) throw new AssertionError(message);
}

/** The value, or a crash when it is missing although the code around it guarantees that it is there. */
export function assertDefined<T>(value: T | undefined | null, message: string): T {
  if (value === undefined || value === null) throw new AssertionError(message);
  return value;
}

/** For the branch that the types rule out: makes a new member of a union fail to compile where it is not handled. */
export function assertNever(value: never): never {
  throw new AssertionError(`unreachable: ${String(value)}`);
}
