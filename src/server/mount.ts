import type { FastifyInstance } from 'fastify';
import { systemClock } from '../base/clock.ts';
import { modelFormats } from '../engine/chat/conversation.ts';
import type { AsyncEngine } from '../engine/contract.ts';
import { KeyQueues } from './key-queues.ts';
import { readableLog } from './log-format.ts';
import type { HttpMetrics } from './metrics/http-metrics.ts';
import { RequestMemory } from './request-memory.ts';
import { registerRoutes } from './routes.ts';
import { type FullServerOptions, type ServerOptions, serverDefaults } from './server-options.ts';

export function withDefaults(options: ServerOptions): FullServerOptions {
  const full = {
    ...serverDefaults,
    logDestination: readableLog(process.stderr),
    clock: systemClock,
    ...options,
    ...(options.apiKeyLimits === undefined ? {} : { keyQueues: new KeyQueues(options.apiKeyLimits) }),
  };
  const { requestMaxBytes, requestsMaxBytes: totalMaxBytes, maxNumSeqs: slots } = full;
  return { ...full, memory: new RequestMemory({ requestMaxBytes, totalMaxBytes, slots }) };
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
  registerRoutes(app, engine, { ...options, ...modelFormats(engine.model, options) });
}
