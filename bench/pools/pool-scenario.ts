import { Prng } from '../../src/base/prng.ts';

/** A request of a scenario. Blocks have `blockSize` tokens. */
export interface PoolRequest {
  readonly arrivesMs: number;
  /** Requests of one family begin with the same `sharedTokens` tokens. */
  readonly family: number;
  readonly sharedTokens: number;
  readonly promptTokens: number;
  /** The largest number of output tokens, which the scheduler knows. */
  readonly maxTokens: number;
  /** The number of output tokens after which the request ends, which the scheduler does not know. */
  readonly outputTokens: number;
  /** How many of the first blocks of the prompt the store has. */
  readonly storedBlocks: number;
}

export interface PoolScenario {
  readonly blocks: number;
  readonly maxNumSeqs: number;
  readonly maxNumBatchedTokens: number;
  readonly requests: readonly PoolRequest[];
  /** A step takes `stepMs`, and `tokenMs` for each token. */
  readonly stepMs: number;
  readonly tokenMs: number;
  /** A load takes `loadMs`, and `loadBlockMs` for each block. */
  readonly loadMs: number;
  readonly loadBlockMs: number;
}

export interface ScenarioKind {
  readonly name: string;
  /** Blocks of the pool, from and to. */
  readonly blocks: readonly [number, number];
  readonly maxNumSeqs: readonly number[];
  /** The share of the requests with blocks in the store; undefined: no connector. */
  readonly storedShare?: number;
  /** Requests end at their `maxTokens`, or at random before. */
  readonly endsEarly: boolean;
  readonly cost: 'gpu' | 'cpu';
}

export const blockSize = 16;

/** A random scenario: 12 to 60 requests, which arrive at once or over some time. Equal seeds give equal scenarios. */
export function poolScenario(kind: ScenarioKind, seed: number): PoolScenario {
  const prng = new Prng(seed);
  const blocks = prng.between(...kind.blocks);
  const count = prng.between(12, 60);
  const promptMax = Math.min(prng.pick([48, 160, 400]), Math.floor((blocks * blockSize) / 3));
  const outputMax = Math.min(prng.pick([20, 80, 200]), Math.floor((blocks * blockSize) / 3));
  const [stepMs, tokenMs] = kind.cost === 'gpu' ? [10, 0.02] : [5, 1];
  const perRequestMs = (stepMs * outputMax) / 2 / prng.pick([2, 4, 8]);
  const spreadMs = prng.pick([0, 0.5, 1, 2]) * perRequestMs * count;
  const sharedShare = prng.pick([0, 0, 0.5]);
  const requests = Array.from({ length: count }, (): PoolRequest => {
    const promptTokens = prng.between(1, promptMax);
    const isShared = prng.chance(sharedShare);
    const maxTokens = prng.between(1, outputMax);
    const outputTokens = kind.endsEarly && prng.chance(0.7) ? prng.between(1, maxTokens) : maxTokens;
    const isStored = prng.chance(kind.storedShare ?? 0);
    const fullBlocks = Math.floor(promptTokens / blockSize);
    return {
      arrivesMs: prng.unit() * spreadMs,
      family: prng.between(0, 2),
      sharedTokens: isShared ? Math.floor(promptTokens * 0.8) : 0,
      promptTokens,
      maxTokens,
      outputTokens,
      storedBlocks: isStored ? prng.between(Math.ceil(fullBlocks / 2), fullBlocks) : 0,
    };
  });
  return {
    blocks,
    maxNumSeqs: prng.pick(kind.maxNumSeqs),
    maxNumBatchedTokens: prng.pick([32, 64, 256, 512]),
    requests: requests.sort((a, b) => a.arrivesMs - b.arrivesMs),
    stepMs,
    tokenMs,
    loadMs: stepMs * prng.pick([0.5, 3, 10]),
    loadBlockMs: stepMs * prng.pick([0.05, 0.3]),
  };
}
