/**
 * What a step costs outside the model: `plan` + `apply` with 256 running requests and 100,000 pages, and the planner on a
 * prompt of 100,000 tokens with holes. Build, then: node dist/src/scheduler/scheduler.bench.js
 */
import { sha256 } from '../../sim/hash.ts';
import { makeRequest } from '../../sim/workload.ts';
import type { BlockCount, TokenCount, TokenId } from '../core/ids.ts';
import type { KvCacheSpec } from '../core/kv-spec.ts';
import type { StepPlan, StepResult } from '../core/step.ts';
import { type GroupValidity, planSpans } from '../kv/planner.ts';
import { SpanList } from '../kv/span-list.ts';
import { Scheduler } from './scheduler.ts';

const blockSize = 16 as TokenCount;
const sampled = { token: 7 as TokenId };

const spec: KvCacheSpec = {
  groups: [{ kind: 'full', blockSize, layers: [0] }],
  pageBytes: 1 << 20,
  pageCount: 100_000 as BlockCount,
  fingerprint: 'bench',
};

function resultOf(plan: StepPlan): StepResult {
  return { stepId: plan.stepId, sampled: plan.sequences.map((sequence) => sequence.sample && sampled) };
}

function report(what: string, times: number[]): void {
  times.sort((a, b) => a - b);
  const at = (share: number) => times[Math.min(Math.floor(times.length * share), times.length - 1)]!.toFixed(4);
  console.log(`${what.padEnd(58)} p50 ${at(0.5)} ms  p99 ${at(0.99)} ms  (${times.length} runs)`);
}

function benchDecode(requestCount: number, promptTokens: number, steps: number): void {
  const scheduler = new Scheduler(
    spec,
    { maxNumBatchedTokens: 8192, maxNumSeqs: 512, maxModelLen: 1 << 20, enablePrefixCaching: true, policy: 'fcfs' },
    sha256,
  );
  for (let i = 0; i < requestCount; i++) {
    const prompt = Int32Array.from({ length: promptTokens + (i % 16) }, (_, t) => t * 31 + i);
    scheduler.add(makeRequest(`request-${i}`, prompt, { params: { maxTokens: 1 << 20 } }));
  }
  const times: number[] = [];
  while (times.length < steps) {
    const started = performance.now();
    const plan = scheduler.plan()!;
    const planned = performance.now();
    const result = resultOf(plan);
    const executed = performance.now();
    scheduler.apply(plan, result);
    const applied = performance.now();
    if (plan.sequences.length === requestCount && plan.tokenCount === requestCount)
      times.push(planned - started + (applied - executed));
  }
  report(`plan + apply, ${requestCount} decodes, ${promptTokens}-token prompts`, times.slice(200));
}

function benchPlanner(tokenCount: number): void {
  const blockCount = Math.ceil(tokenCount / blockSize);
  const holes: GroupValidity = {
    kind: 'full',
    blockSize,
    window: Infinity,
    blockCount,
    validTo: Int32Array.from({ length: blockCount }, (_, block) => (block % 97 === 0 ? 0 : blockSize)),
  };
  const groups: GroupValidity[] = [holes, { ...holes, kind: 'window', window: 4096 }, { ...holes, kind: 'state' }];
  const spans = new SpanList();
  for (const [what, some] of [
    ['full', groups.slice(0, 1)],
    ['full + window + state', groups],
  ] as const) {
    const times: number[] = [];
    for (let run = 0; run < 2000; run++) {
      const started = performance.now();
      planSpans(tokenCount, some, spans);
      times.push(performance.now() - started);
    }
    report(`planner, ${tokenCount} tokens, ${what}`, times);
  }
}

function benchAdmission(tokenCount: number): void {
  const cold: number[] = [];
  const warm: number[] = [];
  for (let run = 0; run < 12; run++) {
    const scheduler = new Scheduler(
      spec,
      { maxNumBatchedTokens: 1 << 20, maxNumSeqs: 8, maxModelLen: 1 << 20, enablePrefixCaching: true, policy: 'fcfs' },
      sha256,
    );
    for (const times of [cold, warm]) {
      scheduler.add(
        makeRequest(
          `${run}-${times.length}-${times === cold}`,
          Int32Array.from({ length: tokenCount }, (_, t) => t),
        ),
      );
      const started = performance.now();
      const plan = scheduler.plan()!;
      times.push(performance.now() - started);
      scheduler.apply(plan, resultOf(plan));
      while (scheduler.hasWork()) {
        const next = scheduler.plan()!;
        scheduler.apply(next, resultOf(next));
      }
    }
  }
  report(`plan that admits ${tokenCount} tokens, nothing cached (hashing)`, cold);
  report(`plan that admits ${tokenCount} tokens, all cached (hashing)`, warm);
}

benchDecode(256, 512, 3000);
benchDecode(256, 4096, 1000);
benchPlanner(100_000);
benchAdmission(100_000);
