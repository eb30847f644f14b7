import type { SamplingOptions } from '../../core/sampling.ts';
import {
  type AnswerFormat,
  formatOfTemplate,
  knowsTools,
  needsControlTokens,
  type ReasoningFormat,
  reasoningFormatOfTemplate,
  type ToolFormat,
} from '../../tools/formats.ts';
import { asPlainMessages, forTemplate, type ToolMessage } from '../../tools/template-messages.ts';
import type { Tool } from '../../tools/tool.ts';
import type { AsyncEngine, ModelInfo } from '../contract.ts';

/** What a chat template shows to the model. */
export interface Conversation {
  readonly messages: readonly ToolMessage[];
  /** Functions that the model may call. */
  readonly tools: readonly Tool[];
  readonly addGenerationPrompt: boolean;
  /** Further inputs of the template. */
  readonly variables: Readonly<Record<string, unknown>>;
}

/** How a model writes calls and thoughts, if the caller has an opinion; by default the chat template decides. */
export interface ChosenFormats {
  readonly toolFormat?: ToolFormat | undefined;
  /** `none`: thoughts are content. */
  readonly reasoningFormat?: ReasoningFormat | 'none' | undefined;
}

export interface ModelFormats {
  readonly toolFormat: ToolFormat;
  /** Undefined: thoughts are content. */
  readonly reasoningFormat: ReasoningFormat | undefined;
}

export function modelFormats({ chatTemplate = '' }: ModelInfo, chosen: ChosenFormats): ModelFormats {
  const { toolFormat = formatOfTemplate(chatTemplate) } = chosen;
  const { reasoningFormat = reasoningFormatOfTemplate(chatTemplate) } = chosen;
  return { toolFormat, reasoningFormat: reasoningFormat === 'none' ? undefined : reasoningFormat };
}

/** Renders the conversation. A template that knows nothing of tools gets them as text. */
export async function renderConversation(
  engine: AsyncEngine,
  { messages, tools, addGenerationPrompt, variables }: Conversation,
  signal?: AbortSignal,
): Promise<string> {
  const isKnown = knowsTools(engine.model.chatTemplate ?? '');
  const shown = tools.map(withoutStrict);
  const input = isKnown ? forTemplate(messages, shown) : asPlainMessages(messages, shown);
  const withTools = input.tools === undefined ? variables : { ...variables, tools: input.tools };
  const options = { addGenerationPrompt, variables: withTools, ...(signal === undefined ? {} : { signal }) };
  const { text } = await engine.renderChat(input.messages, options);
  return text;
}

/** As vLLM shows tools to templates. */
function withoutStrict({ type, function: { strict: _, ...described } }: Tool): Tool {
  return { type, function: described };
}

/** How the answer is read. Without tools, calls are content, except in formats with channels. */
export function answerFormat(
  { tools }: Pick<Conversation, 'tools'>,
  { toolFormat, reasoningFormat }: ModelFormats,
): AnswerFormat {
  const hasCalls = tools.length > 0 || toolFormat === 'openai';
  return { tools: hasCalls ? toolFormat : undefined, reasoning: reasoningFormat };
}

/** The parser needs the control tokens around calls, which are otherwise left out of the text. */
export function withControlTokens(params: SamplingOptions, { tools }: AnswerFormat): SamplingOptions {
  return tools === undefined || !needsControlTokens(tools) ? params : { ...params, skipSpecialTokens: false };
}
