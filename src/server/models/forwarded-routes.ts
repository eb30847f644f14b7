import type { FastifyContextConfig } from 'fastify';
import { messageError } from '../apis/anthropic/message-errors.ts';
import type { ErrorAnswer } from '../http/server-errors.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The last event of a stream that breaks off. Default: OpenAI's form. */
    lastEvent?: (answer: ErrorAnswer) => string;
  }
}

/**
 * How a request finds its model. `body`: its field `model`, or `?model=`; the model is loaded. `query`: `?model=`; the model is not loaded for it.
 * `file`: as `body`, but a model that is not loaded is described by its file. `every`: the one that knows the id in the path.
 */
export type ChosenBy = 'body' | 'query' | 'file' | 'every';

export interface ForwardedRoute {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  readonly url: string;
  readonly by: ChosenBy;
  readonly config?: FastifyContextConfig;
}

const typed = (body: object): string => `event: error\ndata: ${JSON.stringify(body)}\n\n`;

const anthropic: FastifyContextConfig = {
  errorBody: messageError,
  lastEvent: (answer) => typed(messageError(answer)),
};
const responses: FastifyContextConfig = {
  // OpenAI's clients raise only if there is a field `error`.
  lastEvent: ({ body: { error } }) =>
    typed({ type: 'error', code: error.code, message: error.message, param: null, error }),
};

const post = (by: ChosenBy, config: FastifyContextConfig | undefined, ...urls: string[]): ForwardedRoute[] =>
  urls.map((url) => ({ method: 'POST', url, by, ...(config === undefined ? {} : { config }) }));

const get = (...urls: string[]): ForwardedRoute[] => urls.map((url) => ({ method: 'GET', url, by: 'query' }));

/** What the process of a model answers. A test compares it with the endpoints of a server with one model. */
export const forwardedRoutes: readonly ForwardedRoute[] = [
  ...post('body', undefined, '/v1/completions', '/v1/chat/completions', '/v1/chat/completions/input_tokens'),
  ...post('body', undefined, '/v1/embeddings', '/v1/rerank', '/v2/rerank', '/v1/score'),
  ...post('body', undefined, '/tokenize', '/detokenize', '/apply-template', '/infill'),
  ...post('body', anthropic, '/v1/messages', '/v1/messages/count_tokens'),
  ...post('body', undefined, '/api/chat', '/api/generate', '/api/embed', '/api/embeddings'),
  ...post('file', undefined, '/api/show'),
  ...post('body', responses, '/v1/responses', '/v1/responses/input_tokens'),
  { method: 'GET', url: '/v1/responses/:id', by: 'every' },
  { method: 'GET', url: '/v1/responses/:id/input_items', by: 'every' },
  { method: 'DELETE', url: '/v1/responses/:id', by: 'every' },
  { method: 'POST', url: '/v1/responses/:id/cancel', by: 'every' },
  ...post('query', undefined, '/cache/lookup', '/cache/prefetch', '/cache/pin', '/cache/unpin', '/tiers/:name/clear'),
  { method: 'DELETE', url: '/cache/blocks', by: 'query' },
  { method: 'PUT', url: '/tiers/:name', by: 'query' },
  { method: 'DELETE', url: '/tiers/:name', by: 'query' },
  ...get('/cache/lookup', '/cache/pins'),
  ...get('/cache/events', '/tiers', '/kv_event_sources', '/kv_events/blocks', '/props'),
  ...post('query', undefined, '/cache/lose', '/reset_prefix_cache', '/v1/load_lora_adapter', '/v1/unload_lora_adapter'),
];
