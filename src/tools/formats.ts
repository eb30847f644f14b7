import { gemmaParser } from './gemma-calls.ts';
import type { ControlTags } from './held-text.ts';
import { jsonParser } from './json-calls.ts';
import { mistralParser } from './mistral-calls.ts';
import { HarmonyParser } from './parse-harmony.ts';
import {
  ContentParser,
  gemmaThoughts,
  mistralThoughts,
  ThinkingParser,
  type ThoughtTags,
  tagsOfThink,
} from './parse-thinking.ts';
import { olmoParser, pythonParser } from './python-calls.ts';
import { argumentTagsParser, functionTagsParser, hermesParser, nemotronParser, phiParser } from './tag-calls.ts';
import type { AnswerParser, Tool } from './tool.ts';
import { WholeAnswerCalls } from './whole-answer-calls.ts';

/** How models write calls. The names are vLLM's names of tool parsers. */
export const toolFormats = [
  'hermes',
  'llama3_json',
  'mistral',
  'openai',
  'qwen3_coder',
  'glm47',
  'lfm2',
  'gemma4',
  'nemotron_json',
  'olmo3',
  'phi4_mini_json',
] as const;
/** How a model writes calls of tools: the name of one of vLLM's tool parsers. */
export type ToolFormat = (typeof toolFormats)[number];

/** The text that begins calls. In vocabularies of models with the format it mostly is one token. */
export const callOpenings: Readonly<Record<ToolFormat, string>> = {
  hermes: '<tool_call>',
  llama3_json: '<|python_tag|>',
  mistral: '[TOOL_CALLS]',
  // Of the header of a call, which has no token of its own.
  openai: '<|constrain|>',
  qwen3_coder: '<tool_call>',
  glm47: '<tool_call>',
  lfm2: '<|tool_call_start|>',
  gemma4: '<|tool_call>',
  nemotron_json: '<TOOLCALL>',
  olmo3: '<function_calls>',
  phi4_mini_json: '<|tool_call|>',
};

type MakeParser = (tools: readonly Tool[], controlTags?: ControlTags) => AnswerParser;

const parsers: Readonly<Record<ToolFormat, MakeParser>> = {
  hermes: hermesParser,
  llama3_json: jsonParser,
  mistral: mistralParser,
  openai: (tools, controlTags) => new HarmonyParser(tools, { controlTags }),
  qwen3_coder: functionTagsParser,
  glm47: argumentTagsParser,
  lfm2: pythonParser,
  gemma4: gemmaParser,
  nemotron_json: nemotronParser,
  olmo3: olmoParser,
  phi4_mini_json: phiParser,
};

/** `tools`: those that the request offers. Calls of others are content. */
export const parserOf = (format: ToolFormat, ...[tools, controlTags]: Parameters<MakeParser>): AnswerParser =>
  parsers[format](tools, controlTags);

/** The tags of each format that may be control tokens. */
const callTags: Readonly<Record<ToolFormat, readonly string[]>> = {
  hermes: ['<tool_call>', '</tool_call>'],
  llama3_json: ['<|python_tag|>'],
  mistral: ['[TOOL_CALLS]', '[CALL_ID]', '[ARGS]'],
  openai: ['<|start|>', '<|channel|>', '<|constrain|>', '<|message|>', '<|end|>', '<|call|>', '<|return|>'],
  qwen3_coder: ['<tool_call>', '</tool_call>'],
  glm47: ['<tool_call>', '</tool_call>', '<arg_key>', '</arg_key>', '<arg_value>', '</arg_value>'],
  lfm2: ['<|tool_call_start|>', '<|tool_call_end|>'],
  gemma4: ['<|tool_call>', '<tool_call|>', '<|"|>'],
  nemotron_json: ['<TOOLCALL>', '</TOOLCALL>'],
  olmo3: ['<function_calls>', '</function_calls>'],
  phi4_mini_json: ['<|tool_call|>', '<|/tool_call|>'],
};

/** The tags of answers that may be control tokens. */
export function tagsOf({ tools, reasoning }: AnswerFormat): readonly string[] {
  const { open, close } = thoughtTags(reasoning);
  return [...(tools === undefined ? [] : callTags[tools]), ...(reasoning === undefined ? [] : [open, close])];
}

/**
 * The format that a chat template asks the model for, by the texts that it writes around calls. Undefined: the template shows
 * no tools, or has a format that is not known.
 */
export function formatOfTemplate(template: string): ToolFormat | undefined {
  if (template.includes('<|channel|>')) return 'openai';
  if (template.includes('[TOOL_CALLS]')) return 'mistral';
  if (template.includes('<|tool_call>call:')) return 'gemma4';
  if (template.includes('<TOOLCALL>')) return 'nemotron_json';
  if (template.includes('<function_calls>') && template.includes('environment')) return 'olmo3';
  if (template.includes('<|tool|>') || template.includes('functools[')) return 'phi4_mini_json';
  if (template.includes('<|tool_call_start|>') || /List of tools: (?:<\|tool_list_start\|>)?\[/.test(template))
    return 'lfm2';
  if (template.includes('<tool_call>') && template.includes('<arg_key>')) return 'glm47';
  if (template.includes('<tool_call>') && !otherTags.some((tag) => template.includes(tag))) {
    return template.includes('<function=') && template.includes('<parameter=') ? 'qwen3_coder' : 'hermes';
  }
  if (template.includes('<function=')) return undefined;
  return template.includes('<|python_tag|>') || bareCall.test(template) ? 'llama3_json' : undefined;
}

/** Llama's templates tell the model to answer with this object. */
const bareCall = /\{\\?"name\\?": [^{}"\\]*, \\?"parameters\\?":/;

/** Templates with these write `<tool_call>` too, but other texts inside. */
const otherTags = ['<invoke name='];

/** The format for a template whose own format is not known; its tools are described in these words if it shows none itself. */
export const defaultFormat: ToolFormat = 'hermes';

/** How models write their thoughts. The names are vLLM's names of reasoning parsers; with `deepseek_r1` every answer begins with them. */
export const reasoningFormats = ['qwen3', 'deepseek_r1', 'gemma4', 'mistral'] as const;
/** How a model writes its thoughts: the name of one of vLLM's reasoning parsers. */
export type ReasoningFormat = (typeof reasoningFormats)[number];

/** The format of the thoughts that a chat template leaves out of earlier answers. */
export function reasoningFormatOfTemplate(template: string): ReasoningFormat | undefined {
  if (template.includes('<channel|>')) return 'gemma4';
  if (template.includes('[/THINK]')) return 'mistral';
  return template.includes('</think>') ? 'qwen3' : undefined;
}

export interface AnswerFormat {
  /** Undefined: calls are content. */
  readonly tools: ToolFormat | undefined;
  /** The functions that can be called. Calls of others are content. */
  readonly offered: readonly Tool[];
  /** Undefined: thoughts are content. */
  readonly reasoning: ReasoningFormat | undefined;
  /** The beginning of the answer, if it is in the prompt already. */
  readonly continued?: string;
  /** Those of `tagsOf` that are control tokens in the vocabulary. */
  readonly controlTags?: ControlTags;
  /** The caller wants to see the names of other control tokens. */
  readonly showsControls?: boolean;
}

/** The parser for an answer to this prompt; undefined: all of it is content. */
export function answerParser(format: AnswerFormat, prompt: string): AnswerParser | undefined {
  const { tools, offered, reasoning, continued, controlTags } = format;
  if (tools === 'openai') {
    return new HarmonyParser(offered, { beginsInContent: continued !== undefined, controlTags });
  }
  if (tools === undefined && reasoning === undefined) return undefined;
  const calls = tools === undefined ? new ContentParser() : parserOf(tools, offered, controlTags);
  const beginsInside = beginsInThoughts(format, prompt);
  const parser =
    reasoning === undefined
      ? calls
      : new ThinkingParser(calls, { beginsInside, tags: thoughtTags(reasoning), controlTags });
  // If the answer is continued, its beginning was written before.
  if (tools === undefined || continued !== undefined) return parser;
  return new WholeAnswerCalls(parser, offered, { needsFence: tools === 'llama3_json' });
}

/** Whether the answer to a prompt begins inside of the thoughts. */
export function beginsInThoughts({ reasoning, continued }: AnswerFormat, prompt: string): boolean {
  const { open, close } = thoughtTags(reasoning);
  if (continued !== undefined) return continued.lastIndexOf(open) > continued.lastIndexOf(close);
  return reasoning === 'deepseek_r1' || prompt.trimEnd().endsWith(open.trimEnd());
}

/** Whether the prompt ends after thoughts, so that the answer has none. */
export const endsAfterThoughts = ({ reasoning }: AnswerFormat, prompt: string): boolean =>
  prompt.trimEnd().endsWith(thoughtTags(reasoning).close);

/** The texts around thoughts. */
export function thoughtTags(reasoning: ReasoningFormat | undefined): ThoughtTags {
  if (reasoning === 'gemma4') return gemmaThoughts;
  return reasoning === 'mistral' ? mistralThoughts : tagsOfThink;
}

/** Whether the template itself shows tools to the model. */
export const knowsTools = (template: string): boolean => /\btools\b/.test(template);
