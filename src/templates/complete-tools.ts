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
  const described = Object.entries(properties).map(([name, property]) => [
    name,
    isJsonObject(property) ? { description: '', ...property } : property,
  ]);
  return {
    ...(tool as object),
    function: {
      description: description ?? '',
      ...others,
      parameters: { type: 'object', ...parameters, properties: Object.fromEntries(described) },
    },
  };
}

type Schema = Readonly<Record<string, unknown>>;

function completeSchema(schema: Schema): Schema {
  const complete: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(schema)) {
    if (name === 'type' && Array.isArray(value)) Object.assign(complete, oneType(value, schema));
    else if (name === 'properties' && isJsonObject(value))
      complete[name] = Object.fromEntries(Object.entries(value).map(([key, each]) => [key, anySchema(each)]));
    else if (name === 'items') complete[name] = anySchema(value);
    else complete[name] = Array.isArray(value) && unions.has(name) ? value.map(anySchema) : value;
  }
  return complete;
}

const unions = new Set(['anyOf', 'oneOf', 'allOf']);

const anySchema = (schema: unknown): unknown => (isJsonObject(schema) ? completeSchema(schema) : {});

function oneType(types: readonly unknown[], schema: Schema): Schema {
  const [first, ...more] = types.filter((type) => type !== 'null');
  if (first === undefined) return { type: 'null' };
  return more.length === 0 || Object.hasOwn(schema, 'anyOf')
    ? { type: first }
    : { anyOf: types.map((type) => ({ type })) };
}
