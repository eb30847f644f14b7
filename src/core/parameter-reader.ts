import { type FieldFault, FieldReader } from '../base/field-reader.ts';
import { invalidParameter } from './errors.ts';

/** Reads what a caller of the library wrote. `whole`: the name of the object, for errors; fields have names without it. */
export const parameterReader = (value: unknown, whole: string): FieldReader =>
  new FieldReader(value, (fault) => parameterError(fault, whole));

function parameterError(fault: FieldFault, whole: string): Error {
  const { actual } = fault;
  const parameter = fault.parameter === '' ? whole : fault.parameter;
  if (fault.kind === 'unsupported') return invalidParameter({ parameter, expected: `absent${fault.detail}`, actual });
  if (fault.kind !== 'unknown') return invalidParameter({ parameter, expected: fault.expected, actual });
  const expected = `absent: it is not a field of \`${whole}\` (known: ${fault.known.join(', ')})`;
  return invalidParameter({ parameter, expected, actual });
}
