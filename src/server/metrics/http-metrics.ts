import type { FastifyInstance } from 'fastify';
import { Counter, Histogram, Registry } from 'prom-client';
import type { KeyCounts, KeyQueue } from '../http/key-queues.ts';
import type { RequestMemory } from '../http/request-memory.ts';
import type { UnknownFields } from '../http/unknown-fields.ts';
import { addCounter, addGauge, type Sample } from './collected.ts';

/** Probes and scrapes, which would hide the requests of clients. */
const notCounted = new Set(['/metrics', '/health', '/health/live', '/load', '/ping', '/version']);

const seconds = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 120, 300];

export interface HttpMetrics {
  /** Counts the requests of this application. A server has one before its engine is there, and another one after. */
  watch(app: FastifyInstance): void;
  /** In Prometheus' format. */
  text(): Promise<string>;
}

/** Parts of a server that have counts. */
export interface CountedParts {
  readonly callers?: { readonly queues: readonly KeyQueue[] };
  readonly memory?: RequestMemory;
  readonly unknownFields?: UnknownFields | undefined;
}

/** Requests by route and status, and the process, under the names that vLLM's server and Prometheus' clients use. */
export function createHttpMetrics({ callers, memory, unknownFields }: CountedParts = {}): HttpMetrics {
  const registry = new Registry();
  const requests = new Counter({
    name: 'http_requests_total',
    help: 'HTTP requests by route and class of status.',
    labelNames: ['method', 'handler', 'status'],
    registers: [registry],
  });
  const durations = new Histogram({
    name: 'http_request_duration_seconds',
    help: 'Time from an HTTP request to the end of its response.',
    labelNames: ['method', 'handler'],
    buckets: seconds,
    registers: [registry],
  });
  addProcessMetrics(registry);
  if (callers !== undefined && callers.queues.length > 0) addKeyMetrics(registry, callers.queues);
  if (memory !== undefined) addMemoryMetrics(registry, memory);
  if (unknownFields !== undefined) {
    addCounter(registry, {
      name: 'kvasir:unknown_fields_total',
      help: 'Fields of requests that no endpoint knows. They were ignored.',
      read: () => unknownFields.count,
    });
  }
  return {
    watch(app) {
      app.addHook('onRequest', (request, reply, done) => {
        const { method } = request;
        const handler = request.routeOptions.url ?? 'none';
        if (!notCounted.has(handler)) {
          const end = durations.startTimer({ method, handler });
          request.exchange.onEnd(() => {
            requests.inc({ method, handler, status: `${Math.floor(reply.raw.statusCode / 100)}xx` });
            end();
          });
        }
        done();
      });
    },
    text: () => registry.metrics(),
  };
}

function addKeyMetrics(registry: Registry, queues: readonly KeyQueue[]): void {
  const samples = (count: (key: KeyCounts) => number) => () =>
    queues.map((queue) => ({ labels: { key: queue.name }, value: count(queue.counts()) }));
  addGauge(
    registry,
    {
      name: 'kvasir:key_requests_running',
      help: 'Running completions of an API key with limits.',
      read: samples(({ running }) => running),
    },
    ['key'],
  );
  addGauge(
    registry,
    {
      name: 'kvasir:key_requests_waiting',
      help: 'Completions of an API key that wait for its limit.',
      read: samples(({ waiting }) => waiting),
    },
    ['key'],
  );
  addCounter(
    registry,
    {
      name: 'kvasir:key_requests_refused_total',
      help: 'Requests of an API key that got status 429 because of its limits.',
      read: samples(({ refused }) => refused),
    },
    ['key'],
  );
}

function addMemoryMetrics(registry: Registry, memory: RequestMemory): void {
  addGauge(registry, {
    name: 'kvasir:request_memory_bytes',
    help: 'Memory that requests may need: their bodies, and the estimates of their answers.',
    read: () => memory.heldBytes,
  });
  addGauge(registry, {
    name: 'kvasir:requests_waiting_for_memory',
    help: 'Requests that wait because others may need the memory for answers.',
    read: () => memory.waiting,
  });
}

/** No sample without a free file descriptor, because Node reads a file of /proc. */
function residentBytes(): readonly Sample[] {
  try {
    return [{ labels: {}, value: process.memoryUsage.rss() }];
  } catch {
    return [];
  }
}

function addProcessMetrics(registry: Registry): void {
  const startSeconds = Date.now() / 1e3 - process.uptime();
  addGauge(registry, {
    name: 'process_start_time_seconds',
    help: 'Start of the process since the epoch.',
    read: () => startSeconds,
  });
  addGauge(registry, {
    name: 'process_resident_memory_bytes',
    help: 'Resident memory of the process.',
    read: residentBytes,
  });
  addCounter(registry, {
    name: 'process_cpu_seconds_total',
    help: 'CPU time of the process.',
    read: () => {
      const { user, system } = process.cpuUsage();
      return (user + system) / 1e6;
    },
  });
}
