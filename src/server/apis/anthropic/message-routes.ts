import type { FastifyInstance } from 'fastify';
import type { AsyncEngine } from '../../../engine/contract.ts';
import type { Endpoint } from '../../generation/endpoint.ts';
import { answerPrompt, inputTokens, type PromptRouteOptions } from '../../generation/prompt-route.ts';
import type { ParseLimits } from '../../generation/request.ts';
import { messageExample, messageOthers } from '../../openapi/examples.ts';
import { messageError } from './message-errors.ts';
import { messageRenderer } from './message-renderer.ts';
import { readMessageRequest } from './read-message-request.ts';

const body = { example: messageExample, others: messageOthers, reads: [readMessageRequest] };
const about = { body, error: 'MessageError' };

/** `/v1/messages`: Anthropic's API, on the same chats as OpenAI's. */
export const messageEndpoint: Endpoint = {
  path: '/v1/messages',
  about: {
    ...about,
    summary: "Anthropic's API.",
    answer: 'Message',
    chunk: 'MessageEvent',
    media: 'text/event-stream',
  },
  idPrefix: 'msg_',
  idHeader: 'request-id',
  errorBody: messageError,
  read: readMessageRequest,
  render: messageRenderer,
};

export function registerMessageCount(
  app: FastifyInstance,
  engine: AsyncEngine,
  { limits, options }: { readonly limits: ParseLimits; readonly options: PromptRouteOptions },
): void {
  const config = { errorBody: messageError, about: { ...about, summary: 'The number of tokens of a prompt.' } };
  app.post('/v1/messages/count_tokens', { config }, (request, reply) => {
    reply.header('request-id', request.id);
    return answerPrompt({ engine, options }, [request, reply], readMessageRequest(request.body, limits), inputTokens);
  });
}
