import { hasFormat } from './json-text.ts';
import { keywordsOfType, pointer, SchemaError, type SchemaObject } from './schema-keywords.ts';

/** Whether a value of `enum` or `const` matches the other keywords of its schema. */
export function satisfies(value: unknown, schema: SchemaObject, path: string): boolean {
  if (typeof value === 'object' && value !== null) {
    const keywords = keywordsOfType[Array.isArray(value) ? 'array' : 'object']!;
    // `true` restricts nothing, except in `uniqueItems`.
    const other = keywords.find(
      (keyword) => schema[keyword] !== undefined && (schema[keyword] !== true || keyword === 'uniqueItems'),
    );
    if (other === undefined) return true;
    throw new SchemaError(
      pointer(path, other),
      `\`enum\` with objects or arrays together with \`${other}\` is not supported`,
    );
  }
  if (typeof value === 'number') {
    const { minimum, maximum, exclusiveMinimum, exclusiveMaximum } = schema;
    return (
      !(typeof minimum === 'number' && value < minimum) &&
      !(typeof maximum === 'number' && value > maximum) &&
      !(typeof exclusiveMinimum === 'number' && value <= exclusiveMinimum) &&
      !(typeof exclusiveMaximum === 'number' && value >= exclusiveMaximum)
    );
  }
  if (typeof value !== 'string') return true;
  const { minLength, maxLength, pattern, format } = schema;
  const length = [...value].length;
  if (pattern !== undefined) {
    throw new SchemaError(pointer(path, 'pattern'), '`enum` together with `pattern` is not supported');
  }
  if (typeof format === 'string' && !hasFormat(value, format)) {
    // The pattern of a format allows only a part of its texts.
    throw new SchemaError(
      pointer(path, 'format'),
      `whether ${JSON.stringify(value)} of \`enum\` has the format \`${format}\` is not known; leave \`format\` out`,
    );
  }
  return (
    !(typeof minLength === 'number' && length < minLength) && !(typeof maxLength === 'number' && length > maxLength)
  );
}
