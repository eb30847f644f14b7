import type { FastifyReply, FastifyRequest } from 'fastify';
import { renderConversation } from '../../engine/chat/conversation.ts';
import type { AsyncEngine } from '../../engine/contract.ts';
import { abortWhenGone, unlessGone } from '../http/client-connection.ts';
import type { RequestMemory } from '../http/request-memory.ts';
import { sendJson } from '../http/send-json.ts';
import { engineFor } from './engine-for.ts';
import { tokenizeText } from './generation.ts';
import type { ParsedChat } from './request.ts';
import { needsOfTokens } from './request-needs.ts';

/** The prompt that a conversation becomes. */
export interface ConversationPrompt {
  readonly text: string;
  readonly tokens: Int32Array;
}

export interface PromptRouteOptions {
  readonly memory: RequestMemory;
  readonly clientTimeoutMs: number;
}

/** Answers a request about a conversation whose answer is not generated. */
export async function answerPrompt(
  { engine, options }: { readonly engine: AsyncEngine; readonly options: PromptRouteOptions },
  [request, reply]: [FastifyRequest, FastifyReply],
  asked: ParsedChat,
  answer: (prompt: ConversationPrompt) => object,
): Promise<FastifyReply | object> {
  engineFor(engine, asked.model);
  const prepared = await unlessGone(reply, abortWhenGone(reply).signal, async (signal) => {
    const rendered = await renderConversation(engine, asked, signal);
    const tokens = await tokenizeText(engine, rendered, asked.addSpecial, signal);
    const held = await options.memory.hold(needsOfTokens(tokens.length), signal, request.caller.tenant);
    return { body: answer({ text: `${rendered}`, tokens }), held };
  });
  if (prepared === undefined) return reply;
  using _held = prepared.held;
  return await sendJson(reply, prepared.body, options);
}

/** The answer of several APIs. */
export const inputTokens = ({ tokens }: ConversationPrompt) => ({ input_tokens: tokens.length });
