import { readExactJson } from '../../../base/exact-json.ts';
import { isJsonObject } from '../../../base/json.ts';

/** A tool as the client knows it. The model sees one name for both parts, and every tool as a function. */
export interface ToolName {
  readonly name: string;
  /** The group of the tool. */
  readonly namespace?: string;
  /** The input is a text instead of JSON. */
  readonly isCustom: boolean;
}

/** The name that the model sees. */
export function shownName(name: string, namespace: string | undefined): string {
  if (namespace === undefined) return name;
  return namespace.endsWith('__') ? namespace + name : `${namespace}__${name}`;
}

/** A custom tool is a function with one text. */
const inputName = 'input';

export const customParameters = (pattern: string | undefined) => ({
  type: 'object',
  properties: { [inputName]: { type: 'string', ...(pattern === undefined ? {} : { pattern }) } },
  required: [inputName],
  additionalProperties: false,
});

export const customArguments = (input: string): string => JSON.stringify({ [inputName]: input });

/** The input of a custom tool in a call of its function. A model that wrote something else gets it back unchanged. */
export function customInput(text: string): string {
  try {
    const value = readExactJson(text);
    if (!isJsonObject(value)) return text;
    const fields = Object.values(value);
    const input = value[inputName] ?? (fields.length === 1 ? fields[0] : undefined);
    return typeof input === 'string' ? input : text;
  } catch {
    return text;
  }
}
