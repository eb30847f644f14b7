import { type FieldFault, type FieldObserver, FieldReader } from '../base/field-reader.ts';
import { invalidParameter } from './errors.ts';

/** Reads what a caller of the library wrote. `whole`: the name of the object. `path`: before the names of its fields. */
export const parameterReader = (value: unknown, whole: string, path = '', observer?: FieldObserver): FieldReader =>
  new FieldReader(value, (fault) => parameterError(fault, whole), path, { observer });

function parameterError(fault: FieldFault, whole: string): Error {
  const { actual } = fault;
  const parameter = fault.parameter === '' ? whole : fault.parameter;
  if (fault.kind === 'unsupported') return invalidParameter({ parameter, expected: `absent${fault.detail}`, actual });
  if (fault.kind !== 'unknown') return invalidParameter({ parameter, expected: fault.expected, actual });
  const expected = `absent: there is no such parameter (known: ${fault.known.join(', ')})`;
  const hint = fault.nearest === undefined ? '' : `. Did you mean \`${fault.nearest}\`?`;
  return invalidParameter({ parameter, expected, actual: actual + hint });
}
