import type { CheckedSampling } from '../../core/sampling-parse.ts';
import type { AskedStructure } from '../../core/structured-outputs.ts';
import type { GrammarSource } from '../../grammar/structured-grammar.ts';
import { answerGrammar } from '../../tools/answer-grammar.ts';
import type { Tool } from '../../tools/tool.ts';
import type { AsyncEngine } from '../contract.ts';
import type { ChatAnswerOptions } from './chat-answer.ts';
import {
  answerFormat,
  type Conversation,
  callableTools,
  type ModelFormats,
  renderConversation,
  toolTemplateOf,
  withControlTokens,
  withoutCalls,
} from './conversation.ts';
import type { RenderedPrompt } from './rendered-prompt.ts';

/** A chat whose fields were read: by the library from its arguments, by the server from JSON. */
export interface ReadChat extends Conversation {
  readonly params: CheckedSampling;
  /** False: at most one call of a tool for each answer. */
  readonly areParallel: boolean;
  /** The answer consists of calls of these tools; absent: the model decides. */
  readonly requiredTools?: readonly Tool[] | undefined;
  readonly structure?: AskedStructure | undefined;
}

/** A chat as a request for text, and how the text is read. */
export interface PreparedChat {
  readonly prompt: RenderedPrompt;
  readonly params: CheckedSampling;
  readonly answers: ChatAnswerOptions;
  readonly grammar?: GrammarSource;
}

/**
 * The one way from messages, tools and formats to a prompt, for the library and for every endpoint. Rejects with an error of the
 * template, or if the signal aborts.
 */
export async function prepareChat(
  engine: AsyncEngine,
  chat: ReadChat,
  formats: ModelFormats,
  signal?: AbortSignal,
): Promise<PreparedChat> {
  const { tools, requiredTools, areParallel, structure, forbidsCalls } = chat;
  const { format, params } = withControlTokens(engine, chat.params, answerFormat(chat, formats));
  const prompt = await renderConversation(engine, chat, signal);
  const grammar = answerGrammar({
    content: structure,
    calls: { tools: requiredTools ?? callableTools(chat), isRequired: requiredTools !== undefined, areParallel },
    format,
    prompt: prompt.text,
    chatTemplate: toolTemplateOf(engine.model),
  });
  return {
    prompt,
    params: forbidsCalls === true && tools.length > 0 ? withoutCalls(engine, params, formats.toolFormat) : params,
    answers: { format, prompt: prompt.text, areParallel },
    ...(grammar === undefined ? {} : { grammar }),
  };
}
