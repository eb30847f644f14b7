import { type FieldFault, type FieldObserver, FieldReader } from '../../base/field-reader.ts';
import { invalidParameter } from '../../core/errors.ts';
import { bodyNotObject, fieldMissing, fieldNotSupported, fieldUnknown } from './server-errors.ts';
import type { UnknownFields } from './unknown-fields.ts';

/** Of a value without effect, as JSON: more than OpenAI's limits of `metadata`. */
const ignoredLengthMax = 16 * 1024;

/** Reads the fields of a request's body. */
export const bodyReader = (body: unknown, { unknownFields, observer }: BodyOptions = {}): FieldReader =>
  new FieldReader(body, bodyError, '', {
    onUnknown: unknownFields && ((parameter) => unknownFields.note(parameter)),
    observer,
  });

export interface BodyOptions {
  /** Is told of fields that are not known. Absent: they are errors. */
  readonly unknownFields?: UnknownFields | undefined;
  /** Is told of the fields that are read. */
  readonly observer?: FieldObserver | undefined;
}

function bodyError(fault: FieldFault): Error {
  const { kind, parameter, actual } = fault;
  if (kind === 'missing') return fieldMissing({ parameter, expected: fault.expected });
  if (kind === 'unsupported') return fieldNotSupported({ parameter, detail: fault.detail });
  if (kind === 'unknown') {
    const { nearest, path } = fault;
    return fieldUnknown({ parameter, hint: nearest === undefined ? '' : ` Did you mean \`${path}${nearest}\`?` });
  }
  return parameter === ''
    ? bodyNotObject({ actual })
    : invalidParameter({ parameter, expected: fault.expected, actual });
}

/** Accepts fields that name something or describe the request, and that have no effect. */
export function ignoreSmall(reader: FieldReader, names: readonly string[]): void {
  for (const name of names) reader.small(name, ignoredLengthMax);
}
