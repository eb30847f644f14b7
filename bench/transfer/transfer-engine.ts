import { mkdtemp } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { EngineOptions } from '../../src/engine/options.ts';
import { withEngine } from '../bench-flags.ts';
import { prefixNotLoaded } from '../errors.ts';
import { type Comparison, comparison } from '../latency/latency.ts';
import { PAUSE_MS } from '../pauses.ts';
import { RandomTokens } from '../random-tokens.ts';
import { median, rounded } from '../statistics.ts';
import { EngineSubject, type OpenMeasuredEngine } from '../subject/engine-subject.ts';
import { FirstTokenProbe } from '../subject/first-token-probe.ts';
import { RunTimes } from '../subject/run-times.ts';
import { fillWorkload, workloadShape } from '../subject/workload.ts';
import { RawFiles } from './raw-files.ts';

export interface TransferEngineOptions {
  readonly openEngine: OpenMeasuredEngine;
  /** The options of the engines: model, threads, numerics and so on. */
  readonly engine: EngineOptions & { readonly blockSize: number };
  readonly blockBytes: number;
  /** A folder that only the bench uses. */
  readonly root: string;
  readonly repetitions: number;
  readonly signal: AbortSignal;
  readonly onProgress: (text: string) => void;
}

/** The time to the first token after a prefix, for each place of the prefix's KV. */
export interface FirstTokenRow {
  readonly kind: 'firstToken';
  readonly prefixLength: number;
  /** No KV: the prefix is computed. On disk: the pool has evicted the KV, and it is loaded. In the pool: it is cached. */
  readonly recomputeMs: number;
  readonly diskMs: number;
  readonly poolMs: number;
  /** The time of only reading the same number of bytes and files. */
  readonly readMs: number;
  /** `recomputeMs` divided by `diskMs`; the budget is 10. */
  readonly speedup: number;
  /** The time of loading, `diskMs - poolMs`, divided by `readMs`; the budget is 1.5. */
  readonly loadOverRead: number;
}

/**
 * The pool has room for one prefix, so each prompt evicts the prompt before. Prompts are computed and loaded in turn; the
 * row has medians.
 */
export function measureFirstToken(options: TransferEngineOptions, prefixLength: number): Promise<FirstTokenRow> {
  const { openEngine, engine, blockBytes, signal, repetitions } = options;
  const prefixBlocks = Math.floor(prefixLength / engine.blockSize);
  // The null block, a block for the token after the prefix, and one spare block.
  const kvCacheMemory = (prefixBlocks + 3) * blockBytes;
  const small = { ...engine, kvCacheMemory, kvTransferConfig: sharedStorage(options.root) };
  return withEngine(openEngine, small, signal, async (measured) => {
    const random = new RandomTokens(Date.now(), measured.engine.model.vocabSize);
    const probe = new FirstTokenProbe(measured, signal);
    const blocks = Array.from({ length: prefixBlocks }, () => new Uint8Array(blockBytes));
    const files = new RawFiles(options.root);
    await files.write(blocks);
    const [recompute, disk, pool, read]: [number[], number[], number[], number[]] = [[], [], [], []];
    const compute = async (): Promise<{ prompt: Int32Array; ms: number }> => {
      const prompt = random.take(prefixBlocks * engine.blockSize + 1);
      const { ms } = await probe.first(prompt);
      await probe.saved(prefixBlocks);
      return { prompt, ms };
    };
    let previous = await compute();
    for (let round = 0; round <= repetitions; round++) {
      options.onProgress(`first token: ${round === 0 ? 'warming up' : `repetition ${round} of ${repetitions}`}`);
      const next = await compute();
      const loaded = await probe.first(previous.prompt);
      const promised = loaded.stats.externalTokens ?? 0;
      const failed = loaded.stats.failedLoads ?? 0;
      if (failed > 0 || promised < (prefixBlocks - 1) * engine.blockSize) throw prefixNotLoaded({ promised, failed });
      const found = await probe.first(previous.prompt);
      const started = performance.now();
      await files.read(blocks);
      const readMs = performance.now() - started;
      previous = next;
      if (round === 0) continue;
      recompute.push(next.ms);
      disk.push(loaded.ms);
      pool.push(found.ms);
      read.push(readMs);
    }
    const [recomputeMs, diskMs, poolMs, readMs] = [median(recompute), median(disk), median(pool), median(read)];
    return {
      kind: 'firstToken',
      prefixLength: prefixBlocks * engine.blockSize,
      recomputeMs: rounded(recomputeMs),
      diskMs: rounded(diskMs),
      poolMs: rounded(poolMs),
      readMs: rounded(readMs),
      speedup: rounded(recomputeMs / diskMs),
      loadOverRead: rounded(Math.max(0, diskMs - poolMs) / readMs),
    };
  });
}

/** Throughput of requests that share no prefix, with a connector that stores all blocks, and without a connector. */
export interface ConnectorCostRow {
  readonly kind: 'connectorCost';
  readonly requests: number;
  readonly promptLength: number;
  readonly generateLength: number;
  /** Generated tokens per second; the budget of the ratio is 0.97. */
  readonly throughput: Comparison;
  /** The stored blocks of one run, and the time of only writing the same number of bytes and files. */
  readonly blocks: number;
  readonly writeMs: number;
  /** The ratio of throughput if a run took `writeMs` more. */
  readonly writeOnlyRatio: number;
}

export function measureConnectorCost(
  options: TransferEngineOptions,
  lengths: { readonly requests: number; readonly promptLength: number; readonly generateLength: number },
): Promise<ConnectorCostRow> {
  const { openEngine, engine, blockBytes, root, signal, repetitions } = options;
  const shape = workloadShape('independent', lengths.requests, lengths);
  const withConnector = { ...engine, kvTransferConfig: sharedStorage(root) };
  return withEngine(openEngine, engine, signal, (plain) =>
    withEngine(openEngine, withConnector, signal, async (connected) => {
      const random = new RandomTokens(Date.now(), plain.engine.model.vocabSize);
      const subjects = [connected, plain].map((each) => ({
        subject: new EngineSubject(each, lengths.requests, signal),
        rates: [] as number[],
      }));
      const tokens = lengths.requests * lengths.generateLength;
      const blocksOfOne = Math.floor((lengths.promptLength + lengths.generateLength - 1) / engine.blockSize);
      const block = new Uint8Array(blockBytes).fill(1);
      const blocks = new Array<Uint8Array>(lengths.requests * blocksOfOne).fill(block);
      const writes: number[] = [];
      for (let round = 0; round <= repetitions; round++) {
        options.onProgress(`connector: ${round === 0 ? 'warming up' : `repetition ${round} of ${repetitions}`}`);
        const workload = fillWorkload(shape, random);
        for (const { subject, rates } of round % 2 === 1 ? subjects : subjects.toReversed()) {
          await sleep(PAUSE_MS);
          const seconds = await subject.run(workload, new RunTimes());
          if (round > 0) rates.push(tokens / seconds);
        }
        // The files stay, like blocks: memory of a removed file would make the next file cheaper.
        const files = new RawFiles(await mkdtemp(join(root, 'raw-')));
        const started = performance.now();
        await files.write(blocks);
        if (round > 0) writes.push(performance.now() - started);
      }
      const writeMs = median(writes);
      const throughput = comparison(
        ['connector', 'none'],
        subjects.map(({ rates }) => median(rates)),
      );
      const runMs = (1000 * tokens) / median(subjects[1]!.rates);
      return {
        kind: 'connectorCost',
        ...lengths,
        throughput,
        blocks: blocks.length,
        writeMs: rounded(writeMs),
        writeOnlyRatio: rounded(runMs / (runMs + writeMs)),
      };
    }),
  );
}

const sharedStorage = (root: string) =>
  ({
    kvConnector: 'SharedStorageConnector',
    kvRole: 'kv_both',
    kvConnectorExtraConfig: { shared_storage_path: root },
    kvLoadFailurePolicy: 'recompute',
  }) as const;
