import { ExactNumber } from '../../../base/exact-json.ts';
import type { FieldReader } from '../../../base/field-reader.ts';

const part = String.raw`(\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h)`;
const duration = new RegExp(`^[-+]?(?:0|(?:${part})+)$`);
const lengthMax = 64;
const isDuration = (value: unknown): value is string =>
  typeof value === 'string' && value.length <= lengthMax && duration.test(value);

/** Whether this is how long Ollama keeps a model: seconds, or a duration of Go such as "5m" or "1h30m". Below zero: for ever. */
const isKeepAlive = (value: unknown): boolean => typeof value === 'number' || isDuration(value);

/** Whether `keep_alive` says that the model is unloaded after the request: a time of zero. Go counts nanoseconds. */
export function endsModel(given: unknown): boolean {
  const value = given instanceof ExactNumber ? given.valueOf() : given;
  if (typeof value === 'number') return Math.abs(value) < 1e-9;
  if (!isDuration(value)) return false;
  return Array.from(value.matchAll(new RegExp(part, 'g')), ([, number]) => Number(number)).every(
    (number) => number === 0,
  );
}

/** @returns `endsModel` of the field. @throws if it is no time */
export function readKeepAlive(reader: FieldReader): boolean {
  const value = reader.raw('keep_alive');
  if (value !== undefined && !isKeepAlive(value))
    throw reader.invalid('keep_alive', 'seconds, or a duration such as "5m" or "1h30m"');
  return endsModel(value);
}
