import { type FieldFault, FieldReader } from '../base/field-reader.ts';
import { kvConfigInvalid } from './errors.ts';

/** Reads `kv_connector_extra_config`, or with another `path` an object beside it. */
export const configReader = (value: unknown, path = 'kv_connector_extra_config.'): FieldReader =>
  new FieldReader(value, configError, path);

function configError(fault: FieldFault): Error {
  const { kind, parameter, actual } = fault;
  const wrong = (expected: string, hint = ''): Error => kvConfigInvalid({ parameter, expected, actual, hint });
  if (kind === 'invalid') return wrong(fault.expected, fault.hint);
  if (kind === 'missing') return wrong(fault.expected);
  if (kind === 'unsupported') return wrong('absent', ` Kvasir has no such setting: ${fault.detail}.`);
  const { nearest, known, path } = fault;
  const hint = nearest === undefined ? '' : ` Did you mean \`${nearest}\`?`;
  // Above it are only the settings that all connectors have.
  const place = path === '' ? ' Settings of the connector itself go into kv_connector_extra_config.' : '';
  return wrong(`absent: there is no such setting (known: ${known.join(', ')})`, hint + place);
}
