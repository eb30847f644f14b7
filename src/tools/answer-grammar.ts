import type { AskedStructure, ReadStructuredOutputs } from '../core/structured-outputs.ts';
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
import { type GrammarSource, layoutOf, structuredGrammar, structuredSource } from '../grammar/structured-grammar.ts';
import { type CallShape, callsOf, header, message, mistralShape, type ToolText, toolText } from './call-grammar.ts';
import { type AnswerFormat, beginsInThoughts, endsAfterThoughts, thoughtTags } from './formats.ts';
import type { ThoughtTags } from './parse-thinking.ts';
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
  readonly content?: AskedStructure | undefined;
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
  const rules = calls !== undefined && calls.tools.length > 0 ? calls : undefined;
  const isBegun = format.continued !== undefined;
  const tags = thoughtTags(format.reasoning);
  const shape = { format: format.tools, mistral: mistralShape(chatTemplate), thoughts, isBegun, tags };
  if (rules === undefined && thoughts === 'none' && (shape.format !== 'openai' || isBegun)) {
    return content && structuredSource(content.outputs, content.parameter);
  }
  const outputs = isRequired ? undefined : content?.outputs;
  const written = rules && { tools: rules.tools.map(toolText), areParallel: rules.areParallel };
  const job: AnswerJob = { kind: 'answer', outputs, calls: written, shape };
  return {
    key: JSON.stringify(job),
    build: (limits) => buildAnswer(job, limits),
    job,
    parameter: rules === undefined ? content!.parameter : 'tools',
  };
}

interface AnswerShape extends CallShape {
  /** The prompt has the beginning of the content. */
  readonly isBegun: boolean;
  readonly thoughts: 'none' | 'optional' | 'begun';
  readonly tags: ThoughtTags;
}

function thoughtsIn(format: AnswerFormat, prompt: string): AnswerShape['thoughts'] {
  if (format.reasoning === undefined || format.tools === 'openai') return 'none';
  if (beginsInThoughts(format, prompt)) return 'begun';
  if (format.continued !== undefined) return 'none';
  return endsAfterThoughts(format, prompt) ? 'none' : 'optional';
}

/** Plain data, from which any thread can build the grammar of an answer. */
export interface AnswerJob {
  readonly kind: 'answer';
  readonly outputs: ReadStructuredOutputs | undefined;
  readonly calls: { readonly tools: readonly ToolText[]; readonly areParallel: boolean } | undefined;
  readonly shape: AnswerShape;
}

export function buildAnswer({ outputs, calls, shape }: AnswerJob, limits?: GrammarLimits): Grammar {
  const json = new JsonGrammar(layoutOf(outputs ?? {}), new Budget(limits));
  const content = outputs === undefined ? undefined : structuredGrammar(outputs, json);
  const options = [
    ...(content === undefined ? [] : [asContent(content.root, shape)]),
    ...(calls === undefined ? [] : [callsOf({ ...calls, shape, json })]),
  ];
  return {
    root: sequence(thoughtsOf(shape), choice(...options)),
    rules: content?.rules ?? json.rules,
    notes: json.notes,
  };
}

function asContent(content: Expression, { format, isBegun }: AnswerShape): Expression {
  return format === 'openai' && !isBegun ? sequence(header('final'), message, content) : content;
}

/** Thoughts are never restricted. */
function thoughtsOf({ format, thoughts, isBegun, tags }: AnswerShape): Expression {
  if (format === 'openai' && !isBegun) {
    const next = sequence(token('<|start|>'), text('assistant'));
    return optional(sequence(header('analysis'), message, until('<|end|>'), next));
  }
  const rest = sequence(until(tags.close), repeat(characters('\n', ' '), 0, 2));
  if (thoughts === 'none') return text('');
  return thoughts === 'begun' ? rest : optional(sequence(...openOf(tags), rest));
}

/** The first tag: a token, and perhaps a text after it. */
function openOf({ open }: ThoughtTags): Expression[] {
  const [, name = open, rest = ''] = /^(<[^>]*>)([\s\S]*)$/.exec(open) ?? [];
  return [token(name), ...(rest === '' ? [] : [text(rest)])];
}
