import type { FastifyInstance } from 'fastify';
import { systemClock } from '../base/clock.ts';
import { modelFormats, toolTemplateOf } from '../engine/chat/conversation.ts';
import type { AsyncEngine } from '../engine/contract.ts';
import { defaultFormat, formatOfTemplate, knowsTools } from '../tools/formats.ts';
import { ollamaApi } from './apis/ollama/ollama-paths.ts';
import { Callers } from './http/callers.ts';
import { logOf } from './http/log-format.ts';
import { RequestMemory } from './http/request-memory.ts';
import { UnknownFields } from './http/unknown-fields.ts';
import type { HttpMetrics } from './metrics/http-metrics.ts';
import { registerRoutes } from './routes.ts';
import { type FullServerOptions, type ServerOptions, serverDefaults } from './server-options.ts';

export function withDefaults(options: ServerOptions): FullServerOptions {
  const full = {
    ...serverDefaults,
    logDestination: logOf(process.stderr, 'text'),
    clock: systemClock,
    ...options,
    lenientApi: ollamaApi,
    callers: new Callers(options.apiKey, options.apiKeyLimits, options.adminKey),
  };
  const { requestMaxBytes, requestsMaxBytes: totalMaxBytes, maxNumSeqs: slots } = full;
  const memory = new RequestMemory({ requestMaxBytes, totalMaxBytes, slots });
  return { ...full, memory, unknownFields: options.strictFields === true ? undefined : new UnknownFields() };
}

export interface MountOptions extends FullServerOptions {
  /** Whether the chat page is served at `/`. */
  readonly hasPage: boolean;
  /** Absent: the endpoints have their own. */
  readonly httpMetrics?: HttpMetrics;
  isAccepting(): boolean;
}

/** Registers the endpoints for this engine. */
export function mountEngine(app: FastifyInstance, engine: AsyncEngine, options: MountOptions): void {
  const chatTemplate = toolTemplateOf(engine.model);
  if (options.toolFormat === undefined && knowsTools(chatTemplate) && formatOfTemplate(chatTemplate) === undefined) {
    app.log.warn(
      `the chat template shows tools in a format that is not known: calls are read as ${defaultFormat} writes them (--tool-call-parser chooses another format)`,
    );
  }
  options.unknownFields?.logTo((message) => app.log.warn(message));
  registerRoutes(app, engine, { ...options, ...modelFormats(engine.model, options) });
}
