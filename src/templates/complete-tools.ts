import { byEntries } from '../base/by-name.ts';
import { isJsonObject } from '../base/json.ts';

/**
 * A tool with all that some templates read of tools without asking whether it is there: descriptions, parameters and one type for each
 * parameter. A type that is a list becomes `anyOf`, and a schema that is a boolean becomes an object.
 */
export function completeTool(tool: unknown): unknown {
  const called = isJsonObject(tool) ? tool.function : undefined;
  if (!isJsonObject(called)) return tool;
  const { description, parameters: given, ...others } = called;
  const parameters = isJsonObject(given) ? completeSchema(given) : {};
  const properties = isJsonObject(parameters.properties) ? parameters.properties : {};
  const described = Object.entries(properties).map(
    ([name, property]) => [name, isJsonObject(property) ? { description: '', ...property } : property] as const,
  );
  return {
    ...(tool as object),
    function: {
      description: description ?? '',
      ...others,
      parameters: { type: 'object', ...parameters, properties: byEntries(described) },
    },
  };
}

type Schema = Readonly<Record<string, unknown>>;

/** Schemas below are shown as they are. */
const levelsMax = 100;

function completeSchema(schema: Schema, level = 0): Schema {
  if (level === levelsMax) return schema;
  const inner = (each: unknown): unknown => (isJsonObject(each) ? completeSchema(each, level + 1) : {});
  const fields = Object.entries(schema).flatMap(([name, value]): (readonly [string, unknown])[] => {
    if (name === 'type' && Array.isArray(value)) return Object.entries(oneType(value, schema));
    if (name === 'properties' && isJsonObject(value))
      return [[name, byEntries(Object.entries(value).map(([key, each]) => [key, inner(each)]))]];
    if (name === 'items') return [[name, inner(value)]];
    return [[name, Array.isArray(value) && unions.has(name) ? value.map(inner) : value]];
  });
  return byEntries(fields);
}

const unions = new Set(['anyOf', 'oneOf', 'allOf']);

function oneType(types: readonly unknown[], schema: Schema): Schema {
  const [first, ...more] = types.filter((type) => type !== 'null');
  if (first === undefined) return { type: 'null' };
  return more.length === 0 || Object.hasOwn(schema, 'anyOf')
    ? { type: first }
    : { anyOf: types.map((type) => ({ type })) };
}
