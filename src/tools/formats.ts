import { HarmonyParser } from './parse-harmony.ts';
import { HermesParser } from './parse-hermes.ts';
import { JsonParser } from './parse-json.ts';
import { MistralParser } from './parse-mistral.ts';
import { ContentParser, ThinkingParser } from './parse-thinking.ts';
import type { AnswerParser } from './tool.ts';

/** How models write calls. The names are vLLM's names of tool parsers. */
export const toolFormats = ['hermes', 'llama3_json', 'mistral', 'openai'] as const;
export type ToolFormat = (typeof toolFormats)[number];

const parsers: Readonly<Record<ToolFormat, new () => AnswerParser>> = {
  hermes: HermesParser,
  llama3_json: JsonParser,
  mistral: MistralParser,
  openai: HarmonyParser,
};

export const parserOf = (format: ToolFormat): AnswerParser => new parsers[format]();

/** The format that a chat template asks the model for. Templates that say nothing of tools get `hermes`: see `template-messages.ts`. */
export function formatOfTemplate(template: string): ToolFormat {
  if (template.includes('<|channel|>')) return 'openai';
  if (template.includes('[TOOL_CALLS]')) return 'mistral';
  if (template.includes('<tool_call>')) return 'hermes';
  if (template.includes('<|python_tag|>') || /"parameters"\s*:/.test(template)) return 'llama3_json';
  return 'hermes';
}

/** How models write their thoughts. The names are vLLM's names of reasoning parsers; with `deepseek_r1` every answer begins with them. */
export const reasoningFormats = ['qwen3', 'deepseek_r1'] as const;
export type ReasoningFormat = (typeof reasoningFormats)[number];

/** The format of the thoughts that a chat template leaves out of earlier answers. */
export const reasoningFormatOfTemplate = (template: string): ReasoningFormat | undefined =>
  template.includes('</think>') ? 'qwen3' : undefined;

export interface AnswerFormat {
  /** Undefined: calls are content. */
  readonly tools: ToolFormat | undefined;
  /** Undefined: thoughts are content. */
  readonly reasoning: ReasoningFormat | undefined;
}

/** The parser for an answer to this prompt; undefined: all of it is content. */
export function answerParser({ tools, reasoning }: AnswerFormat, prompt: string): AnswerParser | undefined {
  const calls = tools === undefined ? undefined : parserOf(tools);
  if (reasoning === undefined || tools === 'openai') return calls;
  const beginsInside = beginsInThoughts(reasoning, prompt);
  return new ThinkingParser(calls ?? new ContentParser(), { beginsInside });
}

/** Whether the answer to a prompt begins inside of the thoughts. */
export const beginsInThoughts = (reasoning: ReasoningFormat, prompt: string): boolean =>
  reasoning === 'deepseek_r1' || /<think>\s*$/.test(prompt);

/** Whether the template itself shows tools to the model. */
export const knowsTools = (template: string): boolean => /\btools\b/.test(template);

/** Whether calls have control tokens, which are left out of texts otherwise. */
export const needsControlTokens = (format: ToolFormat): boolean => format === 'mistral' || format === 'openai';
