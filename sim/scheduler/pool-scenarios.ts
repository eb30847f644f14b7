import { sha256 } from '../../src/base/sha256.ts';
import type { BlockCount, TokenCount, TokenId } from '../../src/core/ids.ts';
import type { KvGroupSpec } from '../../src/core/kv-spec.ts';
import { Scheduler } from '../../src/scheduler/scheduler.ts';
import { makeRequest } from '../workload.ts';

/** A request whose output is known, so that every scheduler computes the same text. */
export interface ScenarioRequest {
  readonly id: string;
  readonly prompt: readonly number[];
  readonly output: readonly number[];
  /** It arrives at this step, and not before the request `after` has ended. */
  readonly step: number;
  readonly after: string | null;
}

/** Requests for a scheduler without a model. `tools/vllm-scheduler/run.py` runs vLLM's own scheduler on it, one JSON object per line. */
export interface PoolScenario {
  readonly seed: number;
  readonly groups: readonly Omit<KvGroupSpec, 'layers'>[];
  readonly blockCount: number;
  readonly maxNumBatchedTokens: number;
  readonly maxNumSeqs: number;
  readonly maxModelLen: number;
  readonly requests: readonly ScenarioRequest[];
}

const full = (blockSize = 16) => ({ kind: 'full', blockSize: blockSize as TokenCount }) as const;
const state = (blockSize: number) => ({ kind: 'state', blockSize: blockSize as TokenCount }) as const;

/** Two to sixteen requests with common prefixes or earlier requests as prefixes, in a pool that has room for the longest one. */
export function randomScenario(seed: number, hasWindows: boolean): PoolScenario {
  const { unit, int, pick, fresh } = randomOf(seed * 2654435761);
  for (let i = 0; i < 8; i++) unit();
  const windows = hasWindows ? Array.from({ length: int(1, 2) }, () => pick([32, 64, 128])) : [];
  const groups = [
    full(),
    ...windows.map(
      (window) => ({ kind: 'window', blockSize: 16 as TokenCount, window: window as TokenCount }) as const,
    ),
  ];
  const count = int(2, 16);
  const promptMax = pick([80, 200, 400]);
  const outputMax = pick([1, 8, 40]);
  const prefixes = Array.from({ length: int(1, 3) }, () => fresh(int(1, promptMax)));
  const isBurst = unit() < 0.3;
  const hasTurns = unit() < 0.4;
  const requests: ScenarioRequest[] = [];
  const prompt = (earlier: ScenarioRequest | undefined): number[] => {
    if (earlier !== undefined) return [...earlier.prompt, ...earlier.output, ...fresh(int(1, 40))];
    if (unit() >= 0.75) return fresh(int(1, promptMax));
    const prefix = pick(prefixes);
    return [...prefix.slice(0, unit() < 0.7 ? prefix.length : int(1, prefix.length)), ...fresh(int(1, 60))];
  };
  for (let i = 0; i < count; i++) {
    const earlier = hasTurns && i > 0 && unit() < 0.6 ? requests[int(0, i - 1)] : undefined;
    const tokens = prompt(earlier);
    const output = fresh(int(1, outputMax));
    requests.push({
      ...{ id: `r${i}`, prompt: tokens, output, step: isBurst ? 0 : int(0, count * 3) },
      after: earlier?.id ?? null,
    });
  }
  requests.sort((a, b) => a.step - b.step);
  const tokensMax = longest(requests);
  const needed = groups.length * (Math.ceil(tokensMax / 16) + 1);
  return {
    ...{ seed, groups, blockCount: 1 + needed + int(0, pick([2, needed, 3 * needed])) },
    ...{ maxNumBatchedTokens: pick([64, 128, 512, 2048]), maxNumSeqs: pick([2, 4, 8, 16]) },
    ...{ maxModelLen: tokensMax + 1, requests },
  };
}

/** Twelve conversations of eight turns after one system prompt. The pool is so large that no block is evicted. */
export function agentTurns(blockSize: number, stateTokens: number): PoolScenario {
  const { int, fresh } = randomOf(11);
  const requests: ScenarioRequest[] = [];
  const system = fresh(1500);
  for (let conversation = 0; conversation < 12; conversation++) {
    let last: ScenarioRequest | undefined;
    for (let turn = 0; turn < 8; turn++) {
      const before: readonly number[] = last === undefined ? system : [...last.prompt, ...last.output];
      const added = int(50, 800);
      const output = fresh(int(40, 300));
      const after = last?.id ?? (conversation > 0 ? 'c0t0' : null);
      const id = `c${conversation}t${turn}`;
      last = { id, prompt: [...before, ...fresh(added)], output, step: conversation * 3, after };
      requests.push(last);
    }
  }
  return {
    ...{ seed: 1, groups: [full(blockSize), state(stateTokens)], blockCount: 25_000 },
    ...{ maxNumBatchedTokens: 2048, maxNumSeqs: 16, maxModelLen: longest(requests) + 1, requests },
  };
}

/** The tokens that our scheduler computes in all steps. */
export function scheduledTokens(scenario: PoolScenario): number {
  const { groups, blockCount, maxNumBatchedTokens, maxNumSeqs, maxModelLen, requests } = scenario;
  const scheduler = new Scheduler(
    {
      groups: groups.map((group, i) => ({ ...group, layers: [i] }) as KvGroupSpec),
      blockBytes: 64,
      blockCount: blockCount as BlockCount,
      fingerprint: 'scenario',
    },
    { maxNumBatchedTokens, maxNumSeqs, maxModelLen, enablePrefixCaching: true, policy: 'fcfs' },
    sha256,
  );
  const outputs = new Map<string, number[]>();
  const ended = new Set<string>();
  let tokens = 0;
  for (let step = 0; ended.size < requests.length; step++) {
    for (const { id, prompt, output, step: arrives, after } of requests) {
      if (outputs.has(id) || step < arrives || (after !== null && !ended.has(after))) continue;
      outputs.set(id, [...output]);
      scheduler.add(makeRequest(id, prompt, { params: { maxTokens: output.length } }));
    }
    const plan = scheduler.plan();
    if (plan === undefined) continue;
    tokens += plan.tokenCount;
    const sampled = plan.sequences.map(({ sample, requestId }) =>
      sample === undefined ? undefined : { token: outputs.get(requestId)!.shift()! as TokenId },
    );
    const updates = scheduler.apply(plan, { stepId: plan.stepId, sampled });
    for (const { requestId, finish } of updates) if (finish !== undefined) ended.add(requestId);
  }
  return tokens;
}

const longest = (requests: readonly ScenarioRequest[]): number =>
  Math.max(...requests.map(({ prompt, output }) => prompt.length + output.length));

/** A generator that other languages can repeat easily. */
function randomOf(seed: number) {
  let at = seed >>> 0;
  const unit = (): number => {
    at = (at + 0x6d2b79f5) >>> 0;
    let x = Math.imul(at ^ (at >>> 15), at | 1);
    x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
    return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32;
  };
  const int = (from: number, to: number): number => from + Math.floor(unit() * (to - from + 1));
  const pick = <T>(list: readonly T[]): T => list[int(0, list.length - 1)]!;
  const fresh = (count: number): number[] => Array.from({ length: count }, () => int(1, 1e6));
  return { unit, int, pick, fresh };
}
