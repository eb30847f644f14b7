import { bounded, plainLines } from './shown-text.ts';

/**
 * Errors that are not bugs. Each is an entry of a catalogue (`defineError`), which has its code, message, HTTP status and
 * whether a retry can help. The values of the message are also fields of the error. Bugs are assertions (`assert.ts`).
 *
 * Each folder has the catalogue of its errors (`src/ggml/errors.ts`, `src/core/errors.ts`, ...).
 */
export interface ErrorDefinition {
  /** Stable and machine-readable, `KVASIR_...`. */
  readonly code: string;
  /** A sentence with `{field}` placeholders: the actual value, the expected value, and what to do. */
  readonly template: string;
  readonly httpStatus: number;
  /** Whether the same call may succeed later without a change by the caller. */
  readonly retryable: boolean;
}

export type ErrorFields = Readonly<Record<string, string | number | boolean | undefined>>;

/**
 * An error that is not a bug of Kvasir: bad input, a wrong setting, or a failure of the world. `message` says what was found and what to
 * do. docs/errors.md has every code.
 *
 * ```ts
 * try {
 *   for await (const { text } of engine.generate({ prompt: '' })) process.stdout.write(text);
 * } catch (error) {
 *   if (!(error instanceof KvasirError)) throw error;
 *   console.error(error.code, error.message, error.retryable ? 'Try again.' : '');
 * }
 * ```
 */
export class KvasirError extends Error {
  override readonly name = 'KvasirError';
  readonly code: string;
  readonly httpStatus: number;
  readonly retryable: boolean;
  readonly fields: ErrorFields;

  constructor(definition: ErrorDefinition, fields: ErrorFields, cause?: unknown) {
    super(fillTemplate(definition.template, fields), cause === undefined ? undefined : { cause });
    this.code = definition.code;
    this.httpStatus = definition.httpStatus;
    this.retryable = definition.retryable;
    this.fields = fields;
  }
}

/** Defines a catalogue entry and returns the function that creates its error. */
export function defineError(
  code: string,
  template: string,
  httpStatus: number,
  options: { readonly retryable?: boolean } = {},
): ErrorFactory {
  const definition: ErrorDefinition = { code, template, httpStatus, retryable: options.retryable ?? false };
  const make = (fields: ErrorFields = {}, cause?: unknown): KvasirError => new KvasirError(definition, fields, cause);
  return Object.assign(make, { definition });
}

export type ErrorFactory = ((fields?: ErrorFields, cause?: unknown) => KvasirError) & {
  readonly definition: ErrorDefinition;
};

/** Values may come from outside, and messages are logged and sent. */
const valueLengthMax = 4000;

function fillTemplate(template: string, fields: ErrorFields): string {
  return template.replace(/\{(\w+)\}(\.(?=\s|$))?/g, (_, name: string, fullStop = '') => {
    const value = plainLines(bounded(String(fields[name] ?? `{${name}}`), valueLengthMax));
    // A reason can be a sentence with its own full stop, or a question.
    return /([^.]\.|\?)$/.test(value) ? value : `${value}${fullStop}`;
  });
}
