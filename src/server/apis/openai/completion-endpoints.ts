import type { Endpoint } from '../../generation/endpoint.ts';
import { chatExample, chatOthers, completionExample, completionOthers } from '../../openapi/examples.ts';
import { parseChat, parseCompletion } from './parse.ts';
import { chatRenderer, completionRenderer } from './render.ts';

/** OpenAI's endpoints for texts and conversations. */
export const completionEndpoints: readonly Endpoint[] = [
  {
    path: '/v1/completions',
    about: {
      summary: 'Completions of texts or tokens.',
      body: { example: completionExample, others: completionOthers, reads: [parseCompletion] },
      answer: 'CompletionBody',
      chunk: 'CompletionChunk',
      media: 'text/event-stream',
    },
    idPrefix: 'cmpl-',
    // OpenAI's default.
    read: (body, limits) => ({ ...parseCompletion(body, limits), maxTokensDefault: 16 }),
    render: completionRenderer,
  },
  {
    path: '/v1/chat/completions',
    about: {
      summary: 'Answers to conversations.',
      body: { example: chatExample, others: chatOthers, reads: [parseChat] },
      answer: 'ChatBody',
      chunk: 'ChatChunk',
      media: 'text/event-stream',
    },
    idPrefix: 'chatcmpl-',
    read: parseChat,
    render: chatRenderer,
  },
];
