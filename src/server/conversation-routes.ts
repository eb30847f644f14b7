import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { renderConversation } from '../engine/chat/conversation.ts';
import type { AsyncEngine } from '../engine/contract.ts';
import { abortWhenGone, unlessGone } from './client-connection.ts';
import { engineFor } from './engine-for.ts';
import type { ParsedChat, ParseLimits } from './generation/request.ts';
import { tokenizeText } from './generation.ts';
import { parseChat } from './openai-parse.ts';
import { chatExample, chatOthers } from './openapi/examples.ts';
import type { BodyDescription } from './openapi/openapi.ts';
import type { RequestMemory } from './request-memory.ts';
import { needsOfTokens } from './request-needs.ts';
import { sendJson } from './send-json.ts';

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

/** llama-server's endpoints for the prompt of a chat: its text, and the number of its tokens. */
export function registerConversationRoutes(
  app: FastifyInstance,
  engine: AsyncEngine,
  { limits, options }: { readonly limits: ParseLimits; readonly options: PromptRouteOptions },
): void {
  const parts = { engine, options };
  const body: BodyDescription = { example: chatExample, others: chatOthers, reads: [parseChat] };
  app.post(
    '/apply-template',
    { config: { about: { summary: 'The prompt of a conversation.', body } } },
    (request, reply) =>
      answerPrompt(parts, [request, reply], parseChat(request.body, limits), ({ text }) => ({ prompt: text })),
  );
  app.post(
    '/v1/chat/completions/input_tokens',
    { config: { about: { summary: 'The number of tokens of the prompt.', body } } },
    (request, reply) => answerPrompt(parts, [request, reply], parseChat(request.body, limits), inputTokens),
  );
}

/** The answer of several APIs. */
export const inputTokens = ({ tokens }: ConversationPrompt) => ({ input_tokens: tokens.length });
