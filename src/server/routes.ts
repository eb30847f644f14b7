import type { FastifyInstance } from 'fastify';
import type { AsyncEngine } from '../engine/contract.ts';
import { messageEndpoint, registerMessageCount } from './apis/anthropic/message-routes.ts';
import { registerConversationRoutes } from './apis/llama-server/conversation-routes.ts';
import { infillEndpoint } from './apis/llama-server/infill-routes.ts';
import { registerTokenRoutes } from './apis/llama-server/token-routes.ts';
import { ollamaEndpoints, registerOllamaRoutes } from './apis/ollama/ollama-routes.ts';
import { completionEndpoints } from './apis/openai/completion-endpoints.ts';
import { registerEmbeddings } from './apis/openai/embeddings.ts';
import { registerModelCards } from './apis/openai/model-routes.ts';
import { registerScoreRoutes } from './apis/openai/scores.ts';
import { type ResponseRouteOptions, registerResponseRoutes } from './apis/responses/response-routes.ts';
import type { Endpoint } from './generation/endpoint.ts';
import { GenerationRoute, type GenerationRouteOptions } from './generation/generation-route.ts';
import type { ParseLimits } from './generation/request.ts';
import type { Callers } from './http/callers.ts';
import { addShortPaths } from './http/short-paths.ts';
import type { UnknownFields } from './http/unknown-fields.ts';
import type { HttpMetrics } from './metrics/http-metrics.ts';
import { registerMetrics } from './metrics/metrics-routes.ts';
import { registerOpenApi } from './openapi/openapi.ts';
import { registerAbout, registerHealth } from './operator/about-routes.ts';
import { registerAdapterRoutes } from './operator/adapter-routes.ts';
import { type CacheRouteOptions, registerCacheRoutes } from './operator/cache-routes.ts';
import { registerKvEventRoutes } from './operator/kv-event-routes.ts';
import { registerKvRoutes } from './operator/kv-routes.ts';
import { registerPage } from './operator/page-routes.ts';

export interface RouteOptions extends CacheRouteOptions, GenerationRouteOptions, ResponseRouteOptions {
  /** Whether clients may load and unload LoRA adapters. */
  readonly enableRuntimeLora: boolean;
  readonly callers: Pick<Callers, 'requiresKey' | 'hasAdminKey'>;
  readonly version: string;
  readonly choicesMax: number;
  readonly maxNumSeqs: number;
  /** Whether the page is served at `/`. */
  readonly hasPage: boolean;
  readonly unknownFields: UnknownFields | undefined;
  /** Absent: the endpoints have their own. */
  readonly httpMetrics?: HttpMetrics;
}

/** The endpoints whose requests generate. */
const endpoints: readonly Endpoint[] = [...completionEndpoints, infillEndpoint, messageEndpoint, ...ollamaEndpoints];

/** All endpoints of a server of one model. */
export function registerRoutes(app: FastifyInstance, engine: AsyncEngine, options: RouteOptions): void {
  const { model } = engine;
  const limits: ParseLimits = {
    vocabSize: model.vocabSize,
    maxModelLen: model.maxModelLen,
    choicesMax: options.choicesMax,
    unknownFields: options.unknownFields,
    samplingDefaults: model.samplingDefaults,
  };
  registerOpenApi(app, options.version, limits);
  addShortPaths(app);
  const given = { ...options, limits };
  const generations = new GenerationRoute(engine, limits, options);
  for (const endpoint of endpoints) generations.register(app, endpoint);
  registerConversationRoutes(app, engine, { limits, options });
  registerMessageCount(app, engine, { limits, options });
  registerOllamaRoutes(app, engine, { limits, options });
  registerResponseRoutes(app, engine, limits, options);
  registerEmbeddings(app, engine, given);
  registerScoreRoutes(app, engine, given);
  registerModelCards(app, engine);
  registerTokenRoutes(app, engine, { limits, options });
  registerHealth(app, engine, options);
  if (options.hasPage) registerPage(app);
  registerCacheRoutes(app, engine, options);
  registerKvRoutes(app, engine, given);
  registerMetrics(app, engine, options.httpMetrics);
  registerKvEventRoutes(app, engine);
  registerAdapterRoutes(app, engine, given);
  registerAbout(app, engine, options);
}
