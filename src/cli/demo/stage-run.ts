import { fileURLToPath } from 'node:url';
import type { JsonObject } from '../../base/json.ts';
import type { SamplingOptions } from '../../core/sampling.ts';
import type { AsyncEngine } from '../../engine/contract.ts';
import type { EngineOptions } from '../../engine/options.ts';
import type { CliContext } from '../context.ts';

/** The input of a stage's process, on its standard input. Plain data. */
export interface StageOrder {
  readonly engine: Omit<EngineOptions, 'kvTransferConfig' | 'onEvent' | 'onProgress' | 'onDigestProgress'>;
  /** `twoDirectories`: the demo's connector, which loads from one directory and stores in another. */
  readonly connector: 'twoDirectories' | 'offloading';
  /** Its `kv_connector_extra_config`. */
  readonly store: JsonObject;
  /** Named `prompt-0`, `prompt-1`, ... All prompts run, once for each of `samplings`. */
  readonly prompts: readonly string[];
  readonly samplings: readonly SamplingOptions[];
  /** All samplings run at once, and no prompt shares KV with another. */
  readonly isSeparate?: boolean;
  /** Each prompt is submitted when the prompt before it has ended. */
  readonly isSequential?: boolean;
}

/** The output of a stage's process, on its standard output. */
export interface StageAnswer {
  readonly promptTokens: readonly (readonly number[])[];
  /** By sampling and prompt. */
  readonly completions: readonly (readonly StageCompletion[])[];
  /** The messages of the engine's events. */
  readonly events: readonly string[];
}

export interface StageCompletion {
  readonly text: string;
  readonly tokens: readonly number[];
  /** Of the sampled tokens. JSON keeps all bits of the numbers. */
  readonly logprobs: readonly number[];
  readonly firstTokenMs: number;
  readonly promisedTokens: number;
  readonly failedBlocks: number;
  readonly computedTokens: number;
  readonly recomputedTokens: number;
  /** Tokens that were loaded, by tier. */
  readonly loadedTokens: Readonly<Record<string, number>>;
  readonly preemptions: number;
  /** How many output tokens the request had when it was preempted, ascending; once if that happened again before the next token. */
  readonly preemptedAfter: readonly number[];
}

/** Runs in the stage's own process. */
export async function runStage(order: StageOrder, context: CliContext): Promise<StageAnswer> {
  const events: string[] = [];
  const engine = await context.createEngine({
    ...order.engine,
    kvTransferConfig: {
      ...(order.connector === 'offloading'
        ? { kv_connector: 'OffloadingConnector' }
        : { kv_connector: 'TwoDirectoriesConnector', kv_connector_module_path: connectorModule() }),
      kv_role: 'kv_both',
      kv_connector_extra_config: {
        ...order.store,
        ...(order.connector === 'offloading' ? alwaysLoad : {}),
      },
    },
    onEvent: ({ message }) => void events.push(message),
  });
  try {
    const completeInOrder = async (params: SamplingOptions): Promise<StageCompletion[]> => {
      const done: StageCompletion[] = [];
      for (const [i, prompt] of order.prompts.entries())
        done.push(await complete(engine, { prompt, params, requestId: `prompt-${i}` }));
      return done;
    };
    const completeAtOnce = (params: SamplingOptions, sampling: number): Promise<StageCompletion[]> =>
      Promise.all(
        order.prompts.map((prompt, i) =>
          complete(
            engine,
            order.isSeparate === true
              ? { prompt, params, requestId: `prompt-${i}-${sampling}`, cacheSalt: `${i}-${sampling}` }
              : { prompt, params, requestId: `prompt-${i}` },
          ),
        ),
      );
    const completions: StageCompletion[][] = [];
    const completeAll = order.isSequential === true ? completeInOrder : completeAtOnce;
    if (order.isSeparate === true) completions.push(...(await Promise.all(order.samplings.map(completeAtOnce))));
    else for (const [i, params] of order.samplings.entries()) completions.push(await completeAll(params, i));
    return { promptTokens: order.prompts.map((prompt) => engine.tokenize(prompt)), completions, events };
  } finally {
    await engine.close();
  }
}

/** The connector's file in this folder: TypeScript in the sources, JavaScript in the build. */
function connectorModule(): string {
  const extension = import.meta.url.endsWith('.ts') ? 'ts' : 'js';
  return fileURLToPath(new URL(`./two-directories-connector.${extension}`, import.meta.url));
}

interface StageRequest {
  readonly prompt: string;
  readonly params: SamplingOptions;
  readonly requestId: string;
  readonly cacheSalt?: string;
}

async function complete(engine: AsyncEngine, request: StageRequest): Promise<StageCompletion> {
  const started = performance.now();
  let firstTokenMs = Number.NaN;
  let text = '';
  let counts = { promisedTokens: 0, failedBlocks: 0, computedTokens: 0, recomputedTokens: 0, preemptions: 0 };
  let loadedTokens: StageCompletion['loadedTokens'] = {};
  const tokens: number[] = [];
  const logprobs: number[] = [];
  const preemptedAfter: number[] = [];
  for await (const delta of engine.generate({ ...request, params: { ...request.params, logprobs: 0 } })) {
    if (delta.tokenIds.length > 0 && tokens.length === 0) firstTokenMs = performance.now() - started;
    // There is a delta for each output token.
    if (delta.stats.preemptions > counts.preemptions) preemptedAfter.push(tokens.length);
    text += delta.text;
    tokens.push(...delta.tokenIds);
    for (const { logprob } of delta.logprobs ?? []) logprobs.push(logprob);
    if (delta.finish?.error !== undefined) throw delta.finish.error;
    const { externalTokens = 0, failedLoads = 0, computedTokens, recomputedTokens, preemptions } = delta.stats;
    counts = {
      promisedTokens: externalTokens,
      failedBlocks: failedLoads,
      computedTokens,
      recomputedTokens,
      preemptions,
    };
    loadedTokens = delta.stats.loadedTokens ?? loadedTokens;
  }
  return { text, tokens, logprobs, firstTokenMs, loadedTokens, preemptedAfter, ...counts };
}

/**
 * For stages without a fault. The small model of the demo computes so fast that loading does not pay on every machine, and
 * on a busy machine loads take long; the demo shows loads.
 */
const alwaysLoad = { kv_load_policy: 'always', lookup_timeout_seconds: 30, load_timeout_seconds: 30 };
