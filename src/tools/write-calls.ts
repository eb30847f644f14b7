import { ExactNumber, namesOf, writeExactJson } from '../base/exact-json.ts';
import { isJsonObject } from '../base/json.ts';
import type { ToolFormat } from './formats.ts';

/** A call of an earlier answer. */
interface WrittenCall {
  readonly name: string;
  /** A value of `readExactJson`, or a text that is not JSON. */
  readonly arguments: unknown;
}

/** The formats whose templates may show no calls: LFM2's, and those that are not known. */
export type CallWriter = Extract<ToolFormat, 'lfm2' | 'hermes'>;

/** Calls as a model writes them; empty without calls. */
export function writeCalls(format: CallWriter, calls: readonly WrittenCall[]): string {
  if (calls.length === 0) return '';
  if (format === 'lfm2') return `<|tool_call_start|>[${calls.map(pythonCall).join(', ')}]<|tool_call_end|>`;
  return calls
    .map(({ name, arguments: given }) => `<tool_call>\n${writeExactJson({ name, arguments: given })}\n</tool_call>`)
    .join('\n');
}

function pythonCall({ name, arguments: given }: WrittenCall): string {
  if (!isJsonObject(given)) return `${name}(${asPython(given)})`;
  return `${name}(${namesOf(given)
    .map((key) => `${key}=${asPython(given[key])}`)
    .join(', ')})`;
}

function asPython(value: unknown): string {
  if (value === true) return 'True';
  if (value === false) return 'False';
  if (value === null || value === undefined) return 'None';
  if (value instanceof ExactNumber) return value.text;
  if (Array.isArray(value)) return `[${value.map(asPython).join(', ')}]`;
  if (!isJsonObject(value)) return JSON.stringify(value);
  return `{${namesOf(value)
    .map((key) => `${JSON.stringify(key)}: ${asPython(value[key])}`)
    .join(', ')}}`;
}
