import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { AsyncEngine } from '../../engine/contract.ts';
import { answerPrompt, inputTokens } from '../conversation-routes.ts';
import { engineFor } from '../engine-for.ts';
import { prepareAnswer } from '../generation.ts';
import { type ParsedChat, type ParseLimits, parseChat } from '../openai-parse.ts';
import { messageExample, messageOthers } from '../openapi/examples.ts';
import type { BodyDescription } from '../openapi/openapi.ts';
import type { GenerationRoute, RouteOptions } from '../routes.ts';
import { messageError } from './message-errors.ts';
import { messageRenderer } from './message-renderer.ts';
import { chatOfMessages } from './read-message-request.ts';

export interface MessageRouteParts {
  readonly limits: ParseLimits;
  readonly options: RouteOptions;
  readonly generations: GenerationRoute;
}

/** `/v1/messages`: Anthropic's API, on the same chats as OpenAI's. */
export function registerMessageRoutes(
  app: FastifyInstance,
  engine: AsyncEngine,
  { limits, options, generations }: MessageRouteParts,
): void {
  const reads: BodyDescription['reads'] = [
    chatOfMessages,
    (body, given) => parseChat(chatOfMessages(body, limits).body, given),
  ];
  const about = { body: { example: messageExample, others: messageOthers, reads }, error: 'MessageError' };
  const config = { errorBody: messageError };
  const parse = (request: FastifyRequest, reply: FastifyReply): ParsedChat => {
    // Anthropic's name of the header.
    reply.header('request-id', request.id);
    const { body, ignored } = chatOfMessages(request.body, limits);
    const asked = parseChat(body, limits);
    engineFor(engine, asked.model);
    return { ...asked, ignored: [...asked.ignored, ...ignored] };
  };
  app.post(
    '/v1/messages',
    {
      config: {
        ...config,
        about: {
          ...about,
          summary: "Anthropic's API.",
          answer: 'Message',
          chunk: 'MessageEvent',
          media: 'text/event-stream',
        },
      },
    },
    (request, reply) =>
      generations.answer(request, reply, async (signal, place) => {
        const asked = parse(request, reply);
        const chosen = engineFor(engine, asked.model);
        const promptsAtOnce = place.enter(1);
        await place.turn(signal);
        // Each event may have the usage so far.
        const prepared = await prepareAnswer(chosen, { ...asked, continuousUsage: true }, options, signal);
        return { ...prepared, engine: chosen, promptsAtOnce, render: messageRenderer, idPrefix: 'msg_' };
      }),
  );
  app.post(
    '/v1/messages/count_tokens',
    { config: { ...config, about: { ...about, summary: 'The number of tokens of a prompt.' } } },
    (request, reply) => answerPrompt({ engine, options }, [request, reply], parse(request, reply), inputTokens),
  );
}
