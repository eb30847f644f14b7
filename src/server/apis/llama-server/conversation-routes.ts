import type { FastifyInstance } from 'fastify';
import type { AsyncEngine } from '../../../engine/contract.ts';
import { answerPrompt, inputTokens, type PromptRouteOptions } from '../../generation/prompt-route.ts';
import type { ParseLimits } from '../../generation/request.ts';
import type { BodyDescription } from '../../generation/route-description.ts';
import { chatExample, chatOthers } from '../../openapi/examples.ts';
import { parseChat } from '../openai/parse.ts';

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
