import { writeExactJson } from '../base/exact-json.ts';
import type { ReadStructuredOutputs } from '../core/structured-outputs.ts';
import { Budget, type GrammarLimits } from '../grammar/budget.ts';
import {
  characters,
  choice,
  type Expression,
  type Grammar,
  optional,
  repeat,
  sequence,
  text,
  token,
  until,
} from '../grammar/expression.ts';
import { JsonGrammar } from '../grammar/json-grammar.ts';
import { SchemaError } from '../grammar/schema-keywords.ts';
import {
  type GrammarSource,
  layoutOf,
  readSchema,
  structuredGrammar,
  structuredSource,
} from '../grammar/structured-grammar.ts';
import { type AnswerFormat, beginsInThoughts } from './formats.ts';
import type { Tool } from './tool.ts';

/** The calls that an answer may or must have. */
export interface CallRules {
  readonly tools: readonly Tool[];
  /** False: an answer with content is allowed too. */
  readonly isRequired: boolean;
  /** False: one call. */
  readonly areParallel: boolean;
}

export interface AnswerRules {
  /** What the content must look like; undefined: there is content only if the calls are not required. */
  readonly content?: { readonly outputs: ReadStructuredOutputs; readonly parameter: string } | undefined;
  readonly calls?: CallRules | undefined;
  readonly format: AnswerFormat;
  /** The rendered conversation. */
  readonly prompt: string;
  readonly chatTemplate: string;
}

/** The grammar of an answer: thoughts, if the model writes them, then calls or content. Undefined: any text. */
export function answerGrammar({
  content,
  calls,
  format,
  prompt,
  chatTemplate,
}: AnswerRules): GrammarSource | undefined {
  const isRequired = calls?.isRequired === true;
  if (content === undefined && !isRequired) return undefined;
  const thoughts = thoughtsIn(format, prompt);
  const rules = calls !== undefined && calls.tools.length > 0 ? asText(calls) : undefined;
  const shape = { format: format.tools, thoughts, hasArgs: chatTemplate.includes('[ARGS]') };
  if (rules === undefined && thoughts === 'none' && shape.format !== 'openai') {
    return content && structuredSource(content.outputs, content.parameter);
  }
  const outputs = isRequired ? undefined : content?.outputs;
  const job: AnswerJob = { kind: 'answer', outputs, calls: rules, shape };
  return {
    key: JSON.stringify({ outputs, rules, shape }),
    build: (limits) => buildAnswer(job, limits),
    job,
    parameter: rules === undefined ? content!.parameter : 'tools',
  };
}

/** The calls of an answer as plain data. Schemas are texts, which keep all digits on the way to another thread. */
interface CallTexts {
  readonly tools: readonly { readonly name: string; readonly parameters?: string; readonly strict: boolean }[];
  readonly isRequired: boolean;
  readonly areParallel: boolean;
}

function asText({ tools, isRequired, areParallel }: CallRules): CallTexts {
  return {
    tools: tools.map(({ function: { name, parameters, strict = false } }) => {
      const isFree = parameters === undefined || Object.keys(parameters).length === 0;
      return { name, strict, ...(isFree ? {} : { parameters: writeExactJson({ type: 'object', ...parameters }) }) };
    }),
    isRequired,
    areParallel,
  };
}

interface AnswerShape {
  readonly format: AnswerFormat['tools'];
  readonly thoughts: 'none' | 'optional' | 'begun';
  readonly hasArgs: boolean;
}

function thoughtsIn(format: AnswerFormat, prompt: string): AnswerShape['thoughts'] {
  if (format.reasoning === undefined || format.tools === 'openai') return 'none';
  if (beginsInThoughts(format.reasoning, prompt)) return 'begun';
  return /<\/think>\s*$/.test(prompt) ? 'none' : 'optional';
}

/** Plain data, from which any thread can build the grammar of an answer. */
export interface AnswerJob {
  readonly kind: 'answer';
  readonly outputs: ReadStructuredOutputs | undefined;
  readonly calls: CallTexts | undefined;
  readonly shape: AnswerShape;
}

export function buildAnswer({ outputs, calls, shape }: AnswerJob, limits?: GrammarLimits): Grammar {
  const json = new JsonGrammar(layoutOf(outputs ?? {}), new Budget(limits));
  const content = outputs === undefined ? undefined : structuredGrammar(outputs, json);
  const options = [
    ...(content === undefined ? [] : [asContent(content.root, shape)]),
    ...(calls === undefined ? [] : [callsOf(calls, shape, json)]),
  ];
  return {
    root: sequence(thoughtsOf(shape), choice(...options)),
    rules: content?.rules ?? json.rules,
    notes: json.notes,
  };
}

const header = (channel: string): Expression => sequence(token('<|channel|>'), text(channel));
const message = token('<|message|>');

function asContent(content: Expression, { format }: AnswerShape): Expression {
  return format === 'openai' ? sequence(header('final'), message, content) : content;
}

/** Thoughts are never restricted. */
function thoughtsOf({ format, thoughts }: AnswerShape): Expression {
  if (format === 'openai') {
    const next = sequence(token('<|start|>'), text('assistant'));
    return optional(sequence(header('analysis'), message, until('<|end|>'), next));
  }
  const rest = sequence(until('</think>'), repeat(characters('\n', ' '), 0, 2));
  if (thoughts === 'none') return text('');
  return thoughts === 'begun' ? rest : optional(sequence(token('<think>'), rest));
}

function callsOf({ tools, areParallel }: CallTexts, { format, hasArgs }: AnswerShape, json: JsonGrammar): Expression {
  const named = (begin: string, field: string, end: string): Expression =>
    choice(
      ...tools.map((tool) =>
        sequence(text(`${begin}${JSON.stringify(tool.name)}, "${field}": `), argumentsOf(tool, json), text(end)),
      ),
    );
  const listed = (call: Expression, between: Expression): Expression =>
    areParallel ? sequence(call, repeat(sequence(between, call), 0, Infinity)) : call;
  if (format === 'openai') {
    // One call: the model ends its turn after it.
    const options = tools.map((tool) => {
      const recipient = text(` to=functions.${tool.name} `);
      return sequence(
        header('commentary'),
        recipient,
        token('<|constrain|>'),
        text('json'),
        message,
        argumentsOf(tool, json),
      );
    });
    return choice(...options);
  }
  if (format === 'llama3_json') return listed(named('{"name": ', 'parameters', '}'), text('; '));
  if (format !== 'mistral') {
    const call = sequence(token('<tool_call>'), named('\n{"name": ', 'arguments', '}\n'), token('</tool_call>'));
    return listed(call, text('\n'));
  }
  const marker = token('[TOOL_CALLS]');
  if (!hasArgs) {
    return sequence(marker, text('['), listed(named('{"name": ', 'arguments', '}'), text(', ')), text(']'));
  }
  const options = tools.map((tool) => sequence(marker, text(tool.name), token('[ARGS]'), argumentsOf(tool, json)));
  return listed(choice(...options), text(''));
}

function argumentsOf({ name, parameters, strict }: CallTexts['tools'][number], json: JsonGrammar): Expression {
  if (parameters === undefined) return json.object;
  try {
    return json.schema(readSchema(parameters), strict);
  } catch (error) {
    if (error instanceof SchemaError) throw error.inside(`parameters of the tool \`${name}\``);
    throw error;
  }
}
