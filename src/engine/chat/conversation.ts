import { tokenId } from '../../core/ids.ts';
import type { CheckedSampling } from '../../core/sampling-parse.ts';
import { chatTemplateFailed } from '../../tokenizer/errors.ts';
import {
  type AnswerFormat,
  callOpenings,
  defaultFormat,
  formatOfTemplate,
  type ReasoningFormat,
  reasoningFormatOfTemplate,
  type ToolFormat,
  tagsOf,
} from '../../tools/formats.ts';
import { forTemplate, type ToolMessage, withMore } from '../../tools/template-messages.ts';
import type { Tool } from '../../tools/tool.ts';
import type { AsyncEngine, ModelInfo } from '../contract.ts';
import { chatPromptEmpty } from '../errors.ts';
import { RenderedPrompt } from './rendered-prompt.ts';

/** What a chat template shows to the model. */
export interface Conversation {
  readonly messages: readonly ToolMessage[];
  /** Functions that the model sees. */
  readonly tools: readonly Tool[];
  /** It may not call them: `tool_choice` is `none`. They stay in the prompt, whose beginning is then cached as before. */
  readonly forbidsCalls?: boolean | undefined;
  readonly addGenerationPrompt: boolean;
  /** The answer goes on where the final message ends. */
  readonly continueFinalMessage: boolean;
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

export function modelFormats(model: ModelInfo, chosen: ChosenFormats): ModelFormats {
  const { chatTemplate = '' } = model;
  const { toolFormat = formatOfTemplate(toolTemplateOf(model)) ?? defaultFormat } = chosen;
  const { reasoningFormat = reasoningFormatOfTemplate(chatTemplate) } = chosen;
  return { toolFormat, reasoningFormat: reasoningFormat === 'none' ? undefined : reasoningFormat };
}

/** The template of conversations with tools. */
export const toolTemplateOf = ({ toolTemplate, chatTemplate = '' }: ModelInfo): string => toolTemplate ?? chatTemplate;

/** Renders the conversation. */
export async function renderConversation(
  engine: AsyncEngine,
  { messages, tools, addGenerationPrompt, continueFinalMessage, variables }: Conversation,
  signal?: AbortSignal,
): Promise<RenderedPrompt> {
  const described = tools.map(withoutStrict);
  const shown = continueFinalMessage ? withOpenEnd(messages) : messages;
  const prompt = await engine.renderChat(forTemplate(shown), {
    addGenerationPrompt: addGenerationPrompt && !continueFinalMessage,
    variables: described.length === 0 ? variables : { ...variables, tools: described },
    ...(signal === undefined ? {} : { signal }),
  });
  if (prompt.text === '') throw chatPromptEmpty();
  return continueFinalMessage ? new RenderedPrompt(cutAtOpenEnd(prompt.text)) : prompt;
}

/** The text of transformers: some templates know it. It ends with a space, which shows whether the template trims texts. */
const openEnd = 'CONTINUE_FINAL_MESSAGE_TAG ';

function withOpenEnd(messages: readonly ToolMessage[]): readonly ToolMessage[] {
  const last = messages.at(-1)!;
  return [...messages.slice(0, -1), withMore(last, openEnd)];
}

/** Removes what the template writes after the final message. */
function cutAtOpenEnd(text: string): string {
  const at = text.lastIndexOf(openEnd.trimEnd());
  if (at === -1) throw chatTemplateFailed({ reason: 'it does not show the final message, which the answer continues' });
  const before = text.slice(0, at);
  return text.startsWith(openEnd, at) ? before : before.trimEnd();
}

/** As vLLM shows tools to templates. */
function withoutStrict({ type, function: { strict: _, ...described } }: Tool): Tool {
  return { type, function: described };
}

/** Functions that the model may call. */
export const callableTools = ({
  tools,
  forbidsCalls,
}: Pick<Conversation, 'tools' | 'forbidsCalls'>): readonly Tool[] => (forbidsCalls === true ? [] : tools);

/** How the answer is read. Without tools, calls are content, except in formats with channels. */
export function answerFormat(
  conversation: Pick<Conversation, 'tools' | 'forbidsCalls' | 'messages' | 'continueFinalMessage'>,
  { toolFormat, reasoningFormat }: ModelFormats,
): AnswerFormat {
  const { messages, continueFinalMessage } = conversation;
  const offered = callableTools(conversation);
  const hasCalls = offered.length > 0 || toolFormat === 'openai';
  return {
    tools: hasCalls ? toolFormat : undefined,
    offered,
    reasoning: reasoningFormat,
    ...(continueFinalMessage ? { continued: messages.at(-1)!.content } : {}),
  };
}

/**
 * The request and the format for an answer whose tags are control tokens, which are left out of texts otherwise. The vocabulary decides:
 * the name of a control token has other tokens as plain text.
 */
export function withControlTokens(
  engine: AsyncEngine,
  params: CheckedSampling,
  format: AnswerFormat,
): { readonly params: CheckedSampling; readonly format: AnswerFormat } {
  const controlTags = new Set(tagsOf(format).filter((tag) => hasControlToken(engine, tag)));
  if (controlTags.size === 0) return { params, format };
  const showsControls = params.skipSpecialTokens === false;
  return { params: { ...params, skipSpecialTokens: false }, format: { ...format, controlTags, showsControls } };
}

const known = new WeakMap<AsyncEngine, Map<string, boolean>>();

function hasControlToken(engine: AsyncEngine, tag: string): boolean {
  const tags = known.get(engine) ?? new Map<string, boolean>();
  known.set(engine, tags);
  let found = tags.get(tag);
  if (found === undefined) {
    const tokens = (parseSpecial: boolean): string => engine.tokenize(tag, { addSpecial: false, parseSpecial }).join();
    found = tokens(true) !== tokens(false);
    tags.set(tag, found);
  }
  return found;
}

/** Less than the bias of any client, and enough for any logits. */
const forbidden = -10_000;

/**
 * The model cannot begin a call, if one token begins it. A bias costs nothing else; a grammar would need a mask of the whole vocabulary in each
 * step. In formats without such a token, a call is text.
 */
export function withoutCalls(
  engine: Pick<AsyncEngine, 'tokenize'>,
  params: CheckedSampling,
  format: ToolFormat,
): CheckedSampling {
  const tokens = engine.tokenize(callOpenings[format], { addSpecial: false, parseSpecial: true });
  if (tokens.length !== 1) return params;
  return { ...params, logitBias: new Map([...(params.logitBias ?? []), [tokenId(tokens[0]!), forbidden]]) };
}
