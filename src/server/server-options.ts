import type { Clock } from '../base/clock.ts';
import { engineDefaults } from '../engine/options.ts';
import type { ReasoningFormat, ToolFormat } from '../tools/formats.ts';
import type { ResponseKeeper } from './apis/responses/response-keeper.ts';
import type { LenientApi } from './http/access.ts';
import type { Callers } from './http/callers.ts';
import type { KeyLimit } from './http/key-queues.ts';
import type { LogLevel } from './http/log-format.ts';
import type { RequestMemory } from './http/request-memory.ts';
import { eventStreamDefaults } from './http/sse.ts';
import type { TlsIdentity } from './http/tls.ts';
import type { UnknownFields } from './http/unknown-fields.ts';

export interface ServerOptions {
  readonly version: string;
  /** Clients must send it, or one of them. */
  readonly apiKey?: string | readonly string[];
  /** Keys with limits, besides those of `apiKey`. */
  readonly apiKeyLimits?: readonly KeyLimit[];
  /** For endpoints that concern the requests of all clients. Default: the only key, or none. */
  readonly adminKey?: string;
  /**
   * Without a key: the names by which requests may call the server, besides local names and IP addresses. `*.example.com`: all names
   * below it; `*`: all.
   */
  readonly allowedHosts?: readonly string[];
  /** Origins of web pages whose scripts may call the API, such as `https://example.com`; `*`: all. Default: none. */
  readonly allowedOrigins?: readonly string[];
  /** A path before every endpoint, which a proxy may remove or not. */
  readonly rootPath?: string;
  /** Default: HTTP without TLS. */
  readonly tls?: TlsIdentity;
  /** Larger bodies are refused with status 413. */
  readonly bodyMaxBytes?: number;
  /** The largest number of prompts times `n` in one request. */
  readonly choicesMax?: number;
  /** Memory for the stored responses of `/v1/responses`; the oldest are removed. */
  readonly responseStoreMaxBytes?: number;
  /** Default: stored responses end with the server. */
  readonly responseKeeper?: ResponseKeeper;
  /** Requests that may need more memory for their answer are refused. */
  readonly requestMaxBytes?: number;
  /** Memory that all requests may need together; further ones wait or are refused. */
  readonly requestsMaxBytes?: number;
  /** The engine's: requests for many completions wait until others have at most twice as many. */
  readonly maxNumSeqs?: number;
  readonly keepAliveMs?: number;
  /** A client that reads nothing of its answer, or sends its body slower than 2 KiB per second, for this time loses its connection. */
  readonly clientTimeoutMs?: number;
  /** How long a request waits for a model that is being loaded. Default: 10 minutes. */
  readonly loadWaitMaxMs?: number;
  readonly logLevel?: LogLevel;
  /** Receives pino's lines; default: readable lines on stderr. */
  readonly logDestination?: { write(line: string): void };
  /** How the model writes calls of tools; default: what its chat template asks for. */
  readonly toolFormat?: ToolFormat;
  /** How it writes its thoughts, which become `reasoning_content`; default: by its chat template. */
  readonly reasoningFormat?: ReasoningFormat | 'none';
  /**
   * Refuses requests with fields that no endpoint knows, and with `max_tokens` beyond the context. Default false: the fields are
   * ignored and logged once, and the limit is cut.
   */
  readonly strictFields?: boolean;
  /** Allows `POST /cache/lose`, which loses blocks of the KV pool. Default false. */
  readonly enableFaultInjection?: boolean;
  /** Allows `/v1/load_lora_adapter` and `/v1/unload_lora_adapter`, if clients need a key. Default false. */
  readonly enableRuntimeLora?: boolean;
  readonly clock?: Clock;
}

export const serverDefaults = {
  bodyMaxBytes: 8 * 1024 * 1024,
  choicesMax: 128,
  responseStoreMaxBytes: 64 * 1024 * 1024,
  requestMaxBytes: 128 * 1024 * 1024,
  requestsMaxBytes: 1024 * 1024 * 1024,
  maxNumSeqs: engineDefaults.maxNumSeqs,
  ...eventStreamDefaults,
  loadWaitMaxMs: 600_000,
  logLevel: 'info',
  enableFaultInjection: false,
  enableRuntimeLora: false,
} as const satisfies Partial<ServerOptions>;

/** The options with all defaults. */
export type FullServerOptions = ServerOptions &
  Required<Pick<ServerOptions, keyof typeof serverDefaults | 'logDestination' | 'clock'>> & {
    /** Of `apiKey` and `apiKeyLimits`. */
    readonly callers: Callers;
    readonly memory: RequestMemory;
    readonly lenientApi: LenientApi;
    /** Undefined with `strictFields`. */
    readonly unknownFields: UnknownFields | undefined;
  };
