import { describeValue } from '../../../base/describe-value.ts';
import { type FieldReader, shapes } from '../../../base/field-reader.ts';
import { isJsonObject } from '../../../base/json.ts';
import type { Tool, ToolCall } from '../../../tools/tool.ts';
import { checkJsonText } from '../../http/json-limits.ts';

/** The functions of a chat request. */
export interface ParsedTools {
  /** Shown to the model. */
  readonly tools: readonly Tool[];
  /** `tool_choice` is `none`. */
  readonly forbidsCalls?: boolean;
  /** False: at most one call for each answer. */
  readonly areParallel: boolean;
  /** Each call of the answer is one of these, and there is at least one; absent: the model decides. */
  readonly requiredTools?: readonly Tool[];
}

export const toolsMax = 1024;
/** OpenAI's names have at most 64 characters, and those of responses 128. */
export const toolNamePattern = /^[\w.-]{1,128}$/;
export const schemaExpected = 'a JSON schema, which is an object';
export const toolNameExpected = 'a name of 1 to 128 letters, digits, _, - and .';

/** What the request says about calls; an object: the name of the tool that must be called. */
export type ToolChoice = 'none' | 'auto' | 'required' | { readonly name: string };

/** Reads `tools`, `tool_choice` and `parallel_tool_calls`. */
export function readTools(reader: FieldReader): ParsedTools {
  const tools = readToolList(reader);
  const areParallel = reader.boolean('parallel_tool_calls') ?? true;
  return chosenTools(tools, readChoice(reader, new Set(tools.map(({ function: { name } }) => name))), areParallel);
}

/** Reads `tools`. */
export function readToolList(reader: FieldReader): Tool[] {
  const tools = reader.objects('tools', readTool, { max: toolsMax }) ?? [];
  const names = new Set<string>();
  for (const [i, { function: described }] of tools.entries()) {
    if (names.has(described.name)) {
      throw reader.invalid(`tools[${i}].function.name`, 'a name that no other tool has', describeValue(described.name));
    }
    names.add(described.name);
  }
  return tools;
}

export function chosenTools(tools: readonly Tool[], choice: ToolChoice, areParallel: boolean): ParsedTools {
  if (choice === 'none') return { tools, areParallel, forbidsCalls: true };
  if (choice === 'auto') return { tools, areParallel };
  if (choice === 'required') return { tools, areParallel, requiredTools: tools };
  const named = tools.filter(({ function: { name } }) => name === choice.name);
  return { tools, areParallel: false, requiredTools: named };
}

function readChoice(reader: FieldReader, names: ReadonlySet<string>): ToolChoice {
  const expected = '"none", "auto", "required", or an object with the name of a function';
  const choice = reader.raw('tool_choice', shapes.text, shapes.object);
  if (choice === undefined || choice === 'auto') return 'auto';
  if (choice === 'none') return choice;
  const isNamed = isJsonObject(choice);
  if (choice !== 'required' && !isNamed) throw reader.invalid('tool_choice', expected);
  if (names.size === 0) throw reader.invalid('tool_choice', '"none" or "auto" without `tools`');
  if (choice === 'required') return choice;
  const named = reader.inside('tool_choice', choice);
  named.ignore(['type']);
  const described = named.required('function', named.object('function'), 'an object with a name');
  const name = described.required('name', described.name('name'), 'the name of a tool');
  if (!names.has(name)) throw described.invalid('name', `one of ${[...names].join(', ')}`);
  return { name };
}

function readTool(reader: FieldReader): Tool {
  const type = reader.required('type', reader.name('type'), '"function"');
  if (type !== 'function') throw reader.invalid('type', '"function"');
  const described = reader.required('function', reader.object('function'), 'an object with name and parameters');
  const name = described.required('name', described.name('name'), toolNameExpected);
  if (!toolNamePattern.test(name)) throw described.invalid('name', toolNameExpected);
  const description = described.string('description');
  const parameters = described.json('parameters', schemaExpected);
  const strict = described.boolean('strict');
  described.finish();
  reader.finish();
  return {
    type,
    function: {
      name,
      ...(description === undefined ? {} : { description }),
      ...(parameters === undefined ? {} : { parameters }),
      ...(strict === true ? { strict } : {}),
    },
  };
}

/** Fields that clients and gateways add to calls. */
const callFields = ['parsed_arguments', 'provider_specific_fields', 'extra_content', 'cache_control'];

/** The calls of an earlier answer, which a client sends back. `reader`: of the message. */
export function readToolCalls(reader: FieldReader): ToolCall[] {
  const calls = reader.objects('tool_calls', (call): ToolCall => {
    call.ignore(['type', 'index', ...callFields]);
    const id = call.required('id', call.name('id'), 'a string');
    const called = call.required('function', call.object('function'), 'an object with name and arguments');
    const name = called.required('name', called.name('name'), 'a string');
    const text = called.required('arguments', called.string('arguments'), 'a string with JSON');
    checkJsonText(text, called.pathOf('arguments'));
    called.ignore(callFields);
    called.finish();
    call.finish();
    return { id, name, arguments: text };
  });
  return calls ?? [];
}
