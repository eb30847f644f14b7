import { assertDefined } from '../../base/assert.ts';
import type { LlamaReference } from '../../ggml/llama-reference.ts';
import type { MeasuredEngine } from './engine-subject.ts';
import { interrupted } from './errors.ts';
import { type Comparison, comparison } from './latency.ts';
import { RandomTokens } from './random-tokens.ts';
import { median, rounded } from './subject.ts';

export interface ThroughputOptions {
  /** Requests that arrive at once. */
  readonly requests: number;
  /** Tokens that all prompts begin with. */
  readonly prefixLength: number;
  /** Tokens of each prompt's own behind them. */
  readonly promptLength: number;
  readonly generateLength: number;
  readonly repetitions: number;
  readonly onProgress: (text: string) => void;
}

export interface ThroughputRow {
  readonly requests: number;
  readonly prefixLength: number;
  readonly promptLength: number;
  readonly generateLength: number;
  /** Generated tokens per second, from the arrival of all requests to the end of the last. */
  readonly throughput: Comparison;
  /** Kvasir's median time from arrival to first token. */
  readonly firstTokenMs: number;
}

interface Prompts {
  readonly prefix: Int32Array;
  readonly own: readonly Int32Array[];
}

/** The same prompts through Kvasir and, when there is one, through libllama; medians over repetitions, taking turns. */
export async function measureThroughput(
  measured: MeasuredEngine,
  peer: LlamaReference | undefined,
  options: ThroughputOptions,
  signal: AbortSignal,
): Promise<ThroughputRow> {
  const { requests, prefixLength, promptLength, generateLength, repetitions } = options;
  const random = new RandomTokens(Date.now(), measured.engine.model.vocabSize);
  const ours: number[] = [];
  const theirs: number[] = [];
  const firsts: number[] = [];
  // The first round is only to warm up.
  for (let round = 0; round <= repetitions; round++) {
    options.onProgress(round === 0 ? 'warming up' : `repetition ${round} of ${repetitions}`);
    const own = Array.from({ length: requests }, () => random.take(promptLength));
    const prompts = { prefix: random.take(prefixLength), own };
    const run = async (): Promise<void> => {
      const { seconds, firstTokenMs } = await runEngine(measured, prompts, generateLength, signal);
      if (round === 0) return;
      ours.push((requests * generateLength) / seconds);
      firsts.push(...firstTokenMs);
    };
    const runPeer = (): void => {
      if (peer === undefined) return;
      const seconds = runReference(peer, prompts, generateLength);
      if (round > 0) theirs.push((requests * generateLength) / seconds);
    };
    if (round % 2 === 0) runPeer();
    await run();
    if (round % 2 === 1) runPeer();
  }
  const [names, values] =
    peer === undefined
      ? [['kvasir'], [median(ours)]]
      : [
          ['kvasir', 'libllama'],
          [median(ours), median(theirs)],
        ];
  return {
    requests,
    prefixLength,
    promptLength,
    generateLength,
    throughput: comparison(names, values),
    firstTokenMs: rounded(median(firsts)),
  };
}

async function runEngine({ engine }: MeasuredEngine, prompts: Prompts, maxTokens: number, signal: AbortSignal) {
  const params = { maxTokens, temperature: 0, ignoreEos: true };
  const started = performance.now();
  const firstTokenMs = await Promise.all(
    prompts.own.map(async (own) => {
      let first: number | undefined;
      const prompt = new Int32Array([...prompts.prefix, ...own]);
      for await (const { stats } of engine.generate({ prompt, params }, { signal })) {
        if (stats.outputTokens > 0) first ??= performance.now() - started;
      }
      if (signal.aborted) throw interrupted();
      return assertDefined(first, 'every request has a first token');
    }),
  );
  return { seconds: (performance.now() - started) / 1000, firstTokenMs };
}

/**
 * libllama at its best: the prefix once and copied to every sequence, all remaining prompts in full batches, then one
 * token of every sequence per batch. Next tokens are made up instead of sampled.
 */
function runReference(reference: LlamaReference, { prefix, own }: Prompts, generateLength: number): number {
  const started = performance.now();
  reference.clear();
  if (prefix.length > 0) reference.decode(prefix);
  for (let sequence = 1; sequence < own.length; sequence++) reference.copySequence(0, sequence, prefix.length);
  const rows = own.flatMap((tokens, sequence) =>
    Array.from(tokens, (token, i) => ({
      token,
      sequence,
      position: prefix.length + i,
      wanted: i === tokens.length - 1,
    })),
  );
  for (let at = 0; at < rows.length; at += REFERENCE_BATCH) decodeRows(reference, rows.slice(at, at + REFERENCE_BATCH));
  // The prompts' logits give the first tokens, so one batch fewer than tokens.
  for (let i = 1; i < generateLength; i++) {
    decodeRows(
      reference,
      own.map((tokens, sequence) => ({
        token: tokens[i % tokens.length] ?? 0,
        sequence,
        position: prefix.length + tokens.length + i - 1,
        wanted: true,
      })),
    );
  }
  return (performance.now() - started) / 1000;
}

/** libllama's default size of a logical batch. */
export const REFERENCE_BATCH = 2048;

interface ReferenceRow {
  readonly token: number;
  readonly sequence: number;
  readonly position: number;
  readonly wanted: boolean;
}

function decodeRows(reference: LlamaReference, rows: readonly ReferenceRow[]): void {
  reference.decodeBatch({
    tokens: rows.map(({ token }) => token),
    positions: rows.map(({ position }) => position),
    sequences: rows.map(({ sequence }) => sequence),
    wanted: rows.map(({ wanted }) => (wanted ? 1 : 0)),
  });
}
