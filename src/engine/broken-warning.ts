export const reasonOf = (cause: unknown): string => (cause instanceof Error ? cause.message : String(cause));

/** The default for `onBroken`: the requests end with `error`, which does not name the cause. */
export function warnBroken(cause: unknown): void {
  const text = cause instanceof Error ? (cause.stack ?? cause.message) : String(cause);
  process.emitWarning(`the engine stopped after an error: ${text}`, 'KvasirEngineBroken');
}
