import type { ChatAnswerOptions } from '../engine/chat/chat-answer.ts';
import {
  answerFormat,
  type ModelFormats,
  renderConversation,
  toolTemplateOf,
  withControlTokens,
} from '../engine/chat/conversation.ts';
import type { AsyncEngine } from '../engine/contract.ts';
import { answerGrammar } from '../tools/answer-grammar.ts';
import { type Prompt, preparePrompts } from './generation.ts';
import type { ParsedChat } from './openai-parse.ts';

export interface PreparedChat {
  readonly parsed: ParsedChat;
  /** One prompt: the rendered conversation. */
  readonly prompts: readonly Prompt[];
  readonly answers: ChatAnswerOptions;
}

/** Renders and tokenizes a conversation. Without a limit, the answer may be as long as the rest of the context. */
export async function prepareChat(
  engine: AsyncEngine,
  asked: ParsedChat,
  formats: ModelFormats,
  signal: AbortSignal,
): Promise<PreparedChat> {
  const format = answerFormat(asked, formats);
  const prompt = await renderConversation(engine, asked, signal);
  const { requiredTools, tools, areParallel, structure } = asked;
  const grammar = answerGrammar({
    content: structure,
    calls: { tools: requiredTools ?? tools, isRequired: requiredTools !== undefined, areParallel },
    format,
    prompt,
    chatTemplate: toolTemplateOf(engine.model),
  });
  const params = withControlTokens(asked.params, format);
  const parsed = { ...asked, params, ...(grammar === undefined ? {} : { grammar }) };
  const answers = { format, prompt, areParallel: asked.areParallel };
  const { maxModelLen } = engine.model;
  const prompts = await preparePrompts(engine, parsed, { prompts: [prompt], maxTokensDefault: maxModelLen }, signal);
  return { parsed, prompts, answers };
}
