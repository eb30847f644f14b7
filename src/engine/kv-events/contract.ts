import type { KvEvent } from '../../connector/connector.ts';

/** Shows the KV events that an engine publishes. */
export interface KvEventMonitor {
  /** vLLM's description of the publishers: one. */
  sources(): readonly KvEventSource[];
  /** The blocks that the engine has cached, as the pool and the connector know them, and not as the events told them. O(blocks). */
  snapshot(): KvSnapshot;
  counters(): KvEventCounters;
}

export interface KvEventSource {
  readonly dataParallelRank: number;
  readonly endpoint: string;
  readonly replayEndpoint: string | undefined;
  readonly topic: string;
}

export interface KvSnapshot {
  /** A subscriber that has applied all batches below this number has exactly these blocks. */
  readonly nextSequence: number;
  readonly media: readonly MediumContent[];
}

export interface MediumContent {
  readonly medium: string;
  readonly group: number;
  readonly hashes: readonly bigint[];
}

export interface KvEventCounters {
  /** Batches that got a sequence number. */
  readonly batches: number;
  /** Of these, batches that were not sent: a gap for subscribers. */
  readonly dropped: number;
  /** Replays that were asked for. */
  readonly replays: number;
}

/** The engine's side: what it tells and when it ends. */
export interface KvEventSink extends KvEventMonitor {
  /** After a step: changes of the places below the pool. */
  connectorEvents(events: readonly KvEvent[]): void;
  close(): Promise<void>;
}
