import { writeExactJson } from '../base/exact-json.ts';
import type { JsonObject } from '../base/json.ts';
import { characters, choice, type Expression, repeat, sequence, text, token } from '../grammar/expression.ts';
import type { JsonGrammar } from '../grammar/json-grammar.ts';
import { SchemaError } from '../grammar/schema-keywords.ts';
import { readSchema, refusalOf } from '../grammar/structured-grammar.ts';
import type { ToolFormat } from './formats.ts';
import { argumentTags, gemmaArguments, namedArguments, taggedArguments } from './parameter-grammar.ts';
import type { Tool } from './tool.ts';

/** A tool as plain data without loss: threads copy objects, and forget the order of names and the digits of numbers. */
export interface ToolText {
  readonly name: string;
  /** The JSON schema. */
  readonly parameters: string | undefined;
  readonly strict: boolean;
}

export const toolText = ({ function: { name, parameters, strict = false } }: Tool): ToolText => ({
  name,
  strict,
  parameters: parameters === undefined ? undefined : writeExactJson(parameters),
});

export interface CallShape {
  readonly format: ToolFormat | undefined;
  /** What the template of a Mistral model writes between the name and the arguments. */
  readonly mistral: 'list' | 'arguments' | 'ids';
}

export const mistralShape = (chatTemplate: string): CallShape['mistral'] => {
  if (chatTemplate.includes('[CALL_ID]')) return 'ids';
  return chatTemplate.includes('[ARGS]') ? 'arguments' : 'list';
};

interface CallOptions {
  readonly tools: readonly ToolText[];
  readonly areParallel: boolean;
  readonly shape: CallShape;
  readonly json: JsonGrammar;
}

/**
 * One call or more, as the model writes them. Each matches the schema of its tool. If the schema cannot be compiled, a note says so: a
 * strict tool is not called, and another one has any arguments.
 * @throws what `refusalOf` understands, if no tool can be called
 */
export function callsOf(options: CallOptions): Expression {
  const { tools, shape } = options;
  const each = (call: (tool: ToolText) => Expression): Expression => choice(...possible(tools, call, options.json));
  switch (shape.format) {
    case 'openai':
      // One call: the model ends its turn after it.
      return each((tool) => harmonyCall(tool, options.json));
    case 'llama3_json':
      return listed(
        each((tool) => jsonCall(tool, 'parameters', options.json)),
        '; ',
        options,
      );
    case 'mistral':
      return mistralCalls(each, options);
    case 'qwen3_coder':
      return listed(
        each((tool) => functionTags(tool, options.json)),
        '\n',
        options,
      );
    case 'glm47': {
      const call = (tool: ToolText): Expression =>
        sequence(text(tool.name), taggedArguments(schemaOf(tool), options.json, tool.strict, argumentTags));
      return listed(sequence(token('<tool_call>'), each(call), token('</tool_call>')), '', options);
    }
    case 'lfm2': {
      const calls = listed(
        each((tool) => pythonCall(tool, options.json)),
        ', ',
        options,
      );
      return sequence(token('<|tool_call_start|>'), text('['), calls, text(']'), token('<|tool_call_end|>'));
    }
    case 'nemotron_json': {
      const calls = listed(
        each((tool) => jsonCall(tool, 'arguments', options.json)),
        ', ',
        options,
      );
      return sequence(token('<TOOLCALL>'), text('['), calls, text(']'), token('</TOOLCALL>'));
    }
    case 'phi4_mini_json': {
      const calls = listed(
        each((tool) => jsonCall(tool, 'arguments', options.json)),
        ', ',
        options,
      );
      return sequence(token('<|tool_call|>'), text('['), calls, text(']'), token('<|/tool_call|>'));
    }
    case 'olmo3': {
      const calls = listed(
        each((tool) => pythonCall(tool, options.json)),
        '\n',
        options,
      );
      return sequence(text('<function_calls>'), calls, text('</function_calls>'));
    }
    case 'gemma4':
      return listed(
        each((tool) => gemmaCall(tool, options.json)),
        '',
        options,
      );
    default: {
      const object = each((tool) => jsonCall(tool, 'arguments', options.json));
      const call = sequence(token('<tool_call>'), text('\n'), object, text('\n'), token('</tool_call>'));
      return listed(call, '\n', options);
    }
  }
}

function listed(call: Expression, between: string, { areParallel }: CallOptions): Expression {
  return areParallel ? sequence(call, repeat(sequence(text(between), call), 0, Infinity)) : call;
}

const jsonCall = (tool: ToolText, field: string, json: JsonGrammar): Expression =>
  sequence(text(`{"name": ${JSON.stringify(tool.name)}, "${field}": `), argumentsOf(tool, json), text('}'));

export const header = (channel: string): Expression => sequence(token('<|channel|>'), text(channel));
export const message = token('<|message|>');

function harmonyCall(tool: ToolText, json: JsonGrammar): Expression {
  const constrain = sequence(text(` to=functions.${tool.name} `), token('<|constrain|>'), text('json'));
  return sequence(header('commentary'), constrain, message, argumentsOf(tool, json));
}

function mistralCalls(each: (call: (tool: ToolText) => Expression) => Expression, options: CallOptions): Expression {
  const { shape, json } = options;
  const marker = token('[TOOL_CALLS]');
  if (shape.mistral === 'list') {
    const calls = listed(
      each((tool) => jsonCall(tool, 'arguments', json)),
      ', ',
      options,
    );
    return sequence(marker, text('['), calls, text(']'));
  }
  const id = sequence(token('[CALL_ID]'), repeat(characters('az', 'AZ', '09'), 9, 9));
  const beforeArguments = shape.mistral === 'ids' ? sequence(id, token('[ARGS]')) : token('[ARGS]');
  const call = each((tool) => sequence(text(tool.name), beforeArguments, argumentsOf(tool, json)));
  return listed(sequence(marker, call), '', options);
}

function functionTags(tool: ToolText, json: JsonGrammar): Expression {
  const begin = sequence(token('<tool_call>'), text(`\n<function=${tool.name}>\n`));
  return sequence(
    begin,
    taggedArguments(schemaOf(tool), json, tool.strict),
    text('</function>\n'),
    token('</tool_call>'),
  );
}

const pythonCall = (tool: ToolText, json: JsonGrammar): Expression =>
  sequence(text(`${tool.name}(`), namedArguments(schemaOf(tool), json, tool.strict), text(')'));

function gemmaCall(tool: ToolText, json: JsonGrammar): Expression {
  const members = gemmaArguments(schemaOf(tool), json, tool.strict);
  return sequence(token('<|tool_call>'), text(`call:${tool.name}{`), members, text('}'), token('<tool_call|>'));
}

const schemaOf = ({ parameters }: ToolText): JsonObject =>
  parameters === undefined ? {} : (readSchema(parameters) as JsonObject);

/** An object, also where the schema allows other values, because the arguments of a call are an object. */
function argumentsOf(tool: ToolText, json: JsonGrammar): Expression {
  const parameters = schemaOf(tool);
  if (Object.keys(parameters).length === 0) return json.object;
  const compiler = json.compiler(parameters, tool.strict);
  const { atoms } = compiler;
  const written = compiler.valueOf([atoms.link(parameters, '#'), atoms.plain({ type: 'object' }, '#')]);
  compiler.buildRules();
  const built = written.kind === 'rule' ? json.rules.get(written.name)! : written;
  if (built.kind === 'choice' && built.options.length === 0) throw new SchemaError('#', 'no arguments are allowed');
  return written;
}

/** The calls of the tools whose schemas can be compiled. */
function possible(
  tools: readonly ToolText[],
  call: (tool: ToolText) => Expression,
  { budget, note }: JsonGrammar,
): Expression[] {
  const errors: unknown[] = [];
  const calls = tools.flatMap((tool) => {
    try {
      return [budget.attempt(() => inTool(tool, call))];
    } catch (error) {
      const refusal = refusalOf(error);
      if (refusal === undefined || (refusal.isTooLarge && !budget.isLargest)) throw error;
      if (tool.strict) {
        errors.push(error);
        note(`the tool \`${tool.name}\` cannot be called: ${refusal.problem}`);
        return [];
      }
      note(`the arguments of the tool \`${tool.name}\` are not restricted: ${refusal.problem}`);
      return [inTool({ ...tool, parameters: undefined }, call)];
    }
  });
  if (calls.length === 0 && errors.length > 0) throw errors[0];
  return calls;
}

/** Errors name the tool. */
function inTool(tool: ToolText, call: (tool: ToolText) => Expression): Expression {
  try {
    return call(tool);
  } catch (error) {
    if (error instanceof SchemaError) throw error.inside(`parameters of the tool \`${tool.name}\``);
    throw error;
  }
}
