import type { EngineOptions } from '../../src/engine/options.ts';
import type { OpenMeasuredEngine } from '../subject/engine-subject.ts';

export interface OffloadingBenchOptions {
  readonly openEngine: OpenMeasuredEngine;
  /** The options of the engines: model, threads, numerics and so on. */
  readonly engine: EngineOptions & { readonly blockSize: number };
  readonly blockBytes: number;
  /** As on the command line: `host:8GiB`, `disk:/path`, ... */
  readonly tiers: readonly string[];
  readonly repetitions: number;
  readonly signal: AbortSignal;
  readonly onProgress: (text: string) => void;
}

/** A connector with these tiers. `writeQueueBytes`: blocks that wait to be written; default: that of the connector. */
export const withTiers = (tiers: readonly string[], writeQueueBytes?: number) =>
  ({
    kvConnector: 'OffloadingConnector',
    kvRole: 'kv_both',
    kvConnectorExtraConfig: {
      tiers,
      ...(writeQueueBytes === undefined ? {} : { write_queue_bytes: writeQueueBytes }),
    },
    kvLoadFailurePolicy: 'recompute',
  }) as const;
