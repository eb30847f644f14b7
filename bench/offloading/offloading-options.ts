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

/** A connector with these tiers. `loadPolicy`: default `auto`. */
export const withTiers = (tiers: readonly string[], loadPolicy?: 'auto' | 'always') =>
  ({
    kvConnector: 'OffloadingConnector',
    kvRole: 'kv_both',
    kvConnectorExtraConfig: { tiers, ...(loadPolicy === undefined ? {} : { kv_load_policy: loadPolicy }) },
    kvLoadFailurePolicy: 'recompute',
  }) as const;
