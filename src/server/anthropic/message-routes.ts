import type { FastifyInstance } from 'fastify';
import type { AsyncEngine } from '../../engine/contract.ts';
import { answerPrompt, inputTokens, type PromptRouteOptions } from '../conversation-routes.ts';
import type { Endpoint } from '../generation/endpoint.ts';
import type { ParsedChat, ParseLimits } from '../generation/request.ts';
import { parseChat } from '../openai-parse.ts';
import { messageExample, messageOthers } from '../openapi/examples.ts';
import type { BodyDescription } from '../openapi/openapi.ts';
import { messageError } from './message-errors.ts';
import { messageRenderer } from './message-renderer.ts';
import { chatOfMessages } from './read-message-request.ts';

const reads: BodyDescription['reads'] = [
  chatOfMessages,
  (body, given) => parseChat(chatOfMessages(body, given).body, given),
];
const about = { body: { example: messageExample, others: messageOthers, reads }, error: 'MessageError' };

const parse = (given: unknown, limits: ParseLimits): ParsedChat => {
  const { body, ignored } = chatOfMessages(given, limits);
  const asked = parseChat(body, limits);
  return { ...asked, ignored: [...asked.ignored, ...ignored] };
};

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
  read: parse,
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
    return answerPrompt({ engine, options }, [request, reply], parse(request.body, limits), inputTokens);
  });
}
