import { HarmonyParser } from './parse-harmony.ts';
import { HermesParser } from './parse-hermes.ts';
import { JsonParser } from './parse-json.ts';
import { MistralParser } from './parse-mistral.ts';
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

/** The format that a chat template asks the model for. Templates that say nothing of tools get `hermes`: see `describe-tools.ts`. */
export function formatOfTemplate(template: string): ToolFormat {
  if (template.includes('<|channel|>')) return 'openai';
  if (template.includes('[TOOL_CALLS]')) return 'mistral';
  if (template.includes('<tool_call>')) return 'hermes';
  if (template.includes('<|python_tag|>') || /"parameters"\s*:/.test(template)) return 'llama3_json';
  return 'hermes';
}

/** Whether the template itself shows tools to the model. */
export const knowsTools = (template: string): boolean => /\btools\b/.test(template);

/** Whether calls have control tokens, which are left out of texts otherwise. */
export const needsControlTokens = (format: ToolFormat): boolean => format === 'mistral' || format === 'openai';
