/** The composition root, with `compose-pipeline.ts` and `compose-rank.ts`: only these files name concrete classes. */
import { blockedThreadCount } from './base/call-thread.ts';
import { type Clock, systemClock } from './base/clock.ts';
import type { JsonObject } from './base/json.ts';
import { uniform } from './base/philox.ts';
import { sha256 } from './base/sha256.ts';
import { smallContext } from './compose-memory.ts';
import { type OpenedRanks, openRanks } from './compose-pipeline.ts';
import { readKvTransferConfig } from './connector/config.ts';
import type { KvConnector, KvTransferConfig, SchedulerConnector } from './connector/connector.ts';
import { createConnector } from './connector/registry.ts';
import { systemTimers } from './connector/system-timers.ts';
import type { BlockId } from './core/ids.ts';
import type { KvCacheSpec } from './core/kv-spec.ts';
import { type DraftModelFile, readDraftModel } from './draft-model-file.ts';
import { Adapters } from './engine/adapters.ts';
import type { ModelInfo, ScoreInfo } from './engine/contract.ts';
import { DraftEngine } from './engine/draft-engine.ts';
import { encoderOptions } from './engine/encoder-options.ts';
import { Engine } from './engine/engine.ts';
import type { ChatRenderers, DraftModel } from './engine/engine-parts.ts';
import { noReranker } from './engine/errors.ts';
import { readKvEventsConfig } from './engine/kv-events/config.ts';
import { KvEventFeed } from './engine/kv-events/feed.ts';
import { type OpenedPublisher, openKvEventPublisher } from './engine/kv-events/open.ts';
import { modelNames } from './engine/model-names.ts';
import { type EngineOptions, type ResolvedEngineOptions, resolveEngineOptions } from './engine/options.ts';
import { PredictionDrafter } from './engine/prediction-drafter.ts';
import { type GgufFile, readGguf } from './ggml/gguf.ts';
import { exitAtOnce } from './ggml/libc.ts';
import { type AdapterBase, findAdapter } from './ggml/lora-adapter.ts';
import { type ModelConfig, readModelConfig } from './ggml/model-config.ts';
import { readDescription } from './ggml/model-description.ts';
import { digestModel, type ModelDigest } from './ggml/model-digest.ts';
import { isWithoutPooler, type PooledHead } from './ggml/pooled-head.ts';
import { poolingOf } from './ggml/pooling.ts';
import { checkPrediction } from './ggml/prediction-layer.ts';
import { readSamplingDefaults } from './ggml/sampling-defaults.ts';
import { missingWindow } from './ggml/sliding-window.ts';
import { modelFile } from './hub/model-file.ts';
import { longestRequest } from './kv/create-group.ts';
import type { SchedulerOptions } from './scheduler/contract.ts';
import { Scheduler } from './scheduler/scheduler.ts';
import { DraftModelSpeculator } from './scheduler/speculation/draft-model-speculator.ts';
import { readSpeculativeConfig, type SpeculationOptions } from './scheduler/speculation/options.ts';
import type { Speculator } from './scheduler/speculation/speculator.ts';
import { TextSpeculator } from './scheduler/speculation/text-speculator.ts';
import { type FittedPrompt, type FittedTemplate, fittedTemplate } from './templates/fitted-template.ts';
import { BackgroundTemplate, openTemplateThread, type TemplateThread } from './templates/template-thread.ts';
import type { Tokenizer } from './tokenizer/contract.ts';
import { openTokenizer } from './tokenizer/llama-tokenizer.ts';
import { type ChosenTemplates, chooseTemplates, readModelTemplates } from './tokenizer/model-templates.ts';
import { openTextThread } from './tokenizer/text-thread.ts';
import { PipelineExecutor } from './worker/executor-pipeline.ts';
import type { OpenedRank, RankTimings } from './worker/rank.ts';
import type { RestartPolicy } from './worker/restart-budget.ts';

/**
 * Reads a model and creates an engine. The caller closes it.
 *
 * ```ts
 * const engine = await createEngine({ model: 'model.gguf' });
 * for await (const { text } of engine.generate({ prompt: 'Once upon a time' })) process.stdout.write(text);
 * await engine.close();
 * ```
 * @throws KvasirError if the model cannot be read or is not supported, native libraries are missing, or memory is short.
 */
export async function createEngine(options: EngineOptions): Promise<Engine> {
  return (await openMeasuredEngine(options)).engine;
}

/** An engine with measurements of its ranks, for benches and tests. */
export interface MeasuredEngine {
  readonly engine: Engine;
  /** The number of steps, and the milliseconds of their parts, summed over the ranks. */
  timings(): RankTimings;
  /** Tokens of the largest block. A cached prefix ends at a multiple of them. */
  readonly blockTokens: number;
  /** The id of each rank's process, in rank order: this process or a worker process. */
  processIds(): readonly number[];
}

/** Like `createEngine`. `restarts`: how often a worker process that dies is replaced. `clock`: measures the steps. */
export async function openMeasuredEngine(
  options: EngineOptions,
  restarts?: RestartPolicy,
  clock: Clock = systemClock,
): Promise<MeasuredEngine> {
  const given = resolveEngineOptions(options);
  const speculation = given.speculativeConfig && readSpeculativeConfig(given.speculativeConfig);
  const transfer = await openTransfer(given);
  const eventSettings = given.kvEventsConfig && readKvEventsConfig(given.kvEventsConfig);
  const found = { ...given, model: await modelFile(given.model, { onProgress: options.onDownloadProgress }) };
  const file = await readGguf(found.model);
  const config = readModelConfig(file, found.maxModelLen);
  const resolved = config.isEncoder === true ? encoderOptions(found, config.contextLength) : found;
  if (resolved.pooling === 'rank' && config.pooledHead?.scores === undefined)
    throw noReranker({ model: resolved.model });
  if (isWithoutPooler(config.architecture, config.pooledHead)) warn(given, NO_POOLER);
  if (resolved.maxModelLen !== undefined && resolved.maxModelLen > config.contextLength)
    warn(given, beyondContext(resolved.maxModelLen, config.contextLength));
  const windowless = missingWindow(config, resolved.maxModelLen ?? config.contextLength);
  if (windowless !== undefined) warn(given, windowless);
  if (speculation?.method === 'mtp') checkPrediction(file, config);
  // Before the weights of the model are read, which takes minutes.
  const draft = speculation?.method === 'draft_model' ? await readDraftModel(speculation, resolved, file) : undefined;
  const textThread = openTextThread();
  const templateThread = openTemplateThread();
  const hashing = new AbortController();
  const digest = transfer.connector === undefined ? {} : { digest: startDigest(file, resolved, hashing.signal) };
  // Connectors can call `wake` before there is an engine: look-ups may begin when a side is opened.
  let notify = (): void => undefined;
  const wake = (): void => notify();
  let opening: Promise<OpenedRanks> | undefined;
  let tokenizer: Tokenizer | undefined;
  let areRanksOpen = false;
  let connector: SchedulerConnector | undefined;
  let draftModel: DraftModel | undefined;
  let events: OpenedPublisher | undefined;
  try {
    events = eventSettings && (await openKvEventPublisher(eventSettings, (message) => warn(given, message)));
    const { name } = modelNames(resolved);
    // Other threads read the weights while the vocabulary and the templates are read.
    opening = openRanks(resolved, {
      ...transfer,
      file,
      model: config,
      modelName: name,
      draftBytes: draft?.weightBytes ?? 0,
      wake,
      ...digest,
      ...(restarts === undefined ? {} : { restarts }),
    });
    opening.catch(() => undefined);
    tokenizer = await openTokenizer(file, textThread);
    if (tokenizer.warning !== undefined) warn(given, tokenizer.warning);
    const templates = chooseTemplates(readModelTemplates(file.metadata), resolved.chatTemplate);
    const chat = await chatRenderers(templates, tokenizer, {
      thread: templateThread,
      warn: (message) => warn(given, message),
    });
    const { ranks, placement } = await opening;
    areRanksOpen = true;
    connector = await transfer.connector?.openScheduler({
      clock,
      timers: systemTimers,
      wake,
      identities: ranks.map(({ identity }) => identity),
      event: (message) => resolved.onEvent?.({ level: 'warn', message, fields: {} }),
    });
    const executor = new PipelineExecutor(ranks);
    const adapters = await loadAdapters(resolved, { file, config }, executor);
    const model = {
      ...describeModel(resolved, { config, file, tokenizer }, executor.kvCacheSpec, templates),
      ...(tokenizer.fimTokens === undefined ? {} : { fimTokens: tokenizer.fimTokens }),
      ...(placement === undefined ? {} : { placement }),
      attention: [...new Set(ranks.map(({ attentionDescription }) => attentionDescription))].join('; '),
    };
    const isEncoder = config.isEncoder === true;
    const short = isEncoder ? undefined : smallContext(resolved, config, model.maxModelLen);
    if (short !== undefined) warn(given, short);
    const scheduling = schedulerOptionsOf(resolved, model, { ...transfer, isEncoder });
    const canSpeculate = mayVerifyDrafts(speculation, resolved, executor.kvCacheSpec);
    if (canSpeculate && speculation?.method === 'mtp') draftModel = new PredictionDrafter(executor);
    if (canSpeculate && draft !== undefined) draftModel = await openDraftModel(draft, resolved, model.maxModelLen);
    const speculator = canSpeculate ? speculatorOf(speculation) : undefined;
    const scheduler: Scheduler = new Scheduler(executor.kvCacheSpec, scheduling, sha256, { connector, speculator });
    const kvEvents = events && kvEventsOf(events, scheduler, connector);
    if (events !== undefined && !resolved.enablePrefixCaching) warn(resolved, NO_EVENTS);
    const engine = new Engine(
      {
        scheduler,
        executor,
        tokenizer,
        model,
        threads: [textThread, ...(chat === undefined ? [] : [templateThread])],
        inspector: scheduler.inspector,
        prefixes: scheduler.prefixes,
        overwriteBlocks: overwriteOn(ranks),
        ...(connector === undefined ? {} : { connector }),
        draftModel,
        kvEvents,
        adapters,
        ...chat,
      },
      {
        scheduler: scheduling,
        clock,
        maxWaiting: resolved.maxWaiting,
        ...(resolved.seed === undefined ? {} : { drawSeed: seedSequence(resolved.seed) }),
        ...(resolved.onEvent === undefined ? {} : { onEvent: resolved.onEvent }),
      },
    );
    notify = () => engine.notifyTransfers();
    return {
      engine,
      timings: () => summed(ranks.map((rank) => rank.timings())),
      blockTokens: Math.max(...executor.kvCacheSpec.groups.map(({ blockSize }) => blockSize)),
      processIds: () => ranks.map(({ processId }) => processId),
    };
  } catch (error) {
    hashing.abort();
    await events?.publisher.close();
    await connector?.close();
    await draftModel?.close();
    // A wrong vocabulary or template is reported at once, not after the weights.
    const closing = opening?.then(({ ranks }) => Promise.all(ranks.map((rank) => rank.close({ timeoutMs: 0 }))));
    closing?.catch(() => undefined);
    if (areRanksOpen) await closing;
    void templateThread.close();
    tokenizer?.close();
    throw error;
  }
}

const NO_POOLER =
  "The scores of this reranker cannot be right: llama.cpp's converter leaves out the pooler of BERT. Rerankers of XLM-RoBERTa and RoBERTa have all of their head.";

const beyondContext = (maxModelLen: number, contextLength: number): string =>
  `--max-model-len is ${maxModelLen}, and the model was made for ${contextLength} tokens: texts that are longer than that are usually poor.`;

const NO_EVENTS = 'KV events are on, but there will be none: prefix caching is off. Remove --no-enable-prefix-caching.';

const warn = ({ onEvent }: ResolvedEngineOptions, message: string): void =>
  onEvent?.({ level: 'warn', message, fields: {} });

function kvEventsOf(
  opened: OpenedPublisher,
  scheduler: Scheduler,
  connector: SchedulerConnector | undefined,
): KvEventFeed {
  const { inspector } = scheduler;
  return new KvEventFeed({
    ...opened,
    spec: inspector.spec,
    log: scheduler.recordCacheEvents(),
    cachedKeys: () => inspector.cachedKeys(),
    connector,
    seconds: () => Date.now() / 1000,
  });
}

async function loadAdapters(
  options: ResolvedEngineOptions,
  base: AdapterBase,
  executor: PipelineExecutor,
): Promise<Adapters> {
  const { maxLoras, maxLoraRank, loraModules = [] } = options;
  const { name, aliases = [] } = modelNames(options);
  const adapters = new Adapters({
    modelNames: [name, ...aliases],
    countMax: maxLoras,
    loader: {
      async load(path, scale) {
        const source = await findAdapter(path, base, { rankMax: maxLoraRank, scale });
        await executor.loadAdapter(source);
        return source.digest;
      },
      unload: (digest) => executor.unloadAdapter(digest),
    },
  });
  for (const module of loraModules) await adapters.load(module);
  return adapters;
}

interface Transfer {
  readonly transfer?: KvTransferConfig;
  readonly connector?: KvConnector;
}

/** Called before the model is downloaded and loaded, so that a wrong configuration is reported at once. */
async function openTransfer({ kvTransferConfig }: ResolvedEngineOptions): Promise<Transfer> {
  if (kvTransferConfig === undefined) return {};
  const config = readKvTransferConfig(kvTransferConfig as JsonObject);
  letProcessExit();
  return { transfer: config, connector: await createConnector(config) };
}

let isExitWatched = false;

/**
 * At exit Node waits for its threads, also for threads that a dead store blocks for ever. So if the process exits with
 * such a thread, it ends here, after the listeners of the user's program. The library ends no process that does not
 * exit already.
 */
function letProcessExit(): void {
  if (isExitWatched) return;
  isExitWatched = true;
  process.on('exit', function endDespiteThreads(code) {
    if (blockedThreadCount() === 0) return;
    const listeners = process.listeners('exit');
    let exitCode = Number(process.exitCode ?? code);
    try {
      for (const listener of listeners.slice(listeners.indexOf(endDespiteThreads) + 1))
        listener.call(process, exitCode);
      exitCode = Number(process.exitCode ?? code);
    } catch (error) {
      console.error(error);
      exitCode = 1;
    }
    exitAtOnce(exitCode);
  });
}

/** Hashes the model file while the weights are loaded from it. Ranks await the digest after loading. */
function startDigest(file: GgufFile, options: ResolvedEngineOptions, signal: AbortSignal): Promise<ModelDigest> {
  const { onEvent, onDigestProgress: onProgress } = options;
  const event = (message: string): void => onEvent?.({ level: 'warn', message, fields: {} });
  const digest = digestModel(file, { signal, event, onProgress });
  digest.catch(() => undefined);
  return digest;
}

function schedulerOptionsOf(
  options: ResolvedEngineOptions,
  model: ModelInfo,
  { transfer, isEncoder }: Transfer & { readonly isEncoder: boolean },
): SchedulerOptions {
  return {
    maxNumBatchedTokens: options.maxNumBatchedTokens,
    targetInterTokenLatency: options.targetInterTokenLatency,
    maxNumSeqs: options.maxNumSeqs,
    maxModelLen: model.maxModelLen,
    enablePrefixCaching: options.enablePrefixCaching,
    wholePrompts: isEncoder,
    policy: options.schedulingPolicy,
    pinShare: options.kvPinShare,
    ...(transfer === undefined ? {} : { kvLoadFailurePolicy: transfer.kvLoadFailurePolicy }),
  };
}

/** Tells the program that runs the engine if speculation is configured and not possible. */
function mayVerifyDrafts(
  speculation: SpeculationOptions | undefined,
  { onEvent }: ResolvedEngineOptions,
  { groups }: KvCacheSpec,
): boolean {
  // A rejected draft would have changed the running state, and there is no copy of the state before.
  const isPossible = groups.every(({ kind }) => kind !== 'state');
  const message =
    'Speculation is off: the model has layers with recurrent states, for which it is not supported. Remove --speculative-config.';
  if (speculation !== undefined && !isPossible) onEvent?.({ level: 'warn', message, fields: {} });
  return isPossible;
}

function speculatorOf(speculation: SpeculationOptions | undefined): Speculator | undefined {
  if (speculation === undefined) return undefined;
  if (speculation.method === 'ngram' || speculation.method === 'suffix') return new TextSpeculator(speculation);
  return new DraftModelSpeculator(speculation.numSpeculativeTokens);
}

/** An engine for the draft model, in this process. It computes while the model waits, so it has as many threads. */
async function openDraftModel(
  { path, contextLength }: DraftModelFile,
  options: ResolvedEngineOptions,
  maxModelLen: number,
): Promise<DraftEngine> {
  const { threads, cpus, device, gpuLayers, numerics, attention, maxNumSeqs, onEvent } = options;
  const engine = await createEngine({
    model: path,
    threads,
    ...(cpus === undefined ? {} : { cpus }),
    device,
    // The number is of layers of the other model.
    gpuLayers: gpuLayers === 0 ? 0 : 'auto',
    ...(numerics === undefined ? {} : { numerics }),
    attention,
    maxNumSeqs,
    maxModelLen: Math.min(contextLength, maxModelLen),
    blockSize: DRAFT_BLOCK_SIZE,
    targetInterTokenLatency: 0,
    // Its memory was counted with that of the model.
    skipMemoryCheck: true,
    ...(onEvent === undefined ? {} : { onEvent }),
  });
  return new DraftEngine(engine, onEvent);
}

/** Small, because the tokens after the last full block are computed again for each draft. */
const DRAFT_BLOCK_SIZE = 4;

/** Overwrites blocks on all ranks; undefined if some rank cannot. */
function overwriteOn(ranks: readonly OpenedRank[]): ((blocks: readonly BlockId[]) => void) | undefined {
  if (ranks.some(({ overwrite }) => overwrite === undefined)) return undefined;
  return (blocks) => {
    for (const { overwrite } of ranks) overwrite?.(blocks);
  };
}

/** Times are sums over the ranks; steps are not, because every rank runs every step. */
const summed = (all: readonly RankTimings[]): RankTimings => ({
  steps: Math.max(...all.map(({ steps }) => steps)),
  prepareMs: all.reduce((sum, { prepareMs }) => sum + prepareMs, 0),
  computeMs: all.reduce((sum, { computeMs }) => sum + computeMs, 0),
  sampleMs: all.reduce((sum, { sampleMs }) => sum + sampleMs, 0),
});

interface ModelSource {
  readonly config: ModelConfig;
  readonly file: GgufFile;
  readonly tokenizer: Tokenizer;
}

/** The prompt of a reranker is the file's template for it, or the texts with the vocabulary's tokens around them. */
const scoreInfo = (
  { metadata }: GgufFile,
  { pooling, length, scores }: PooledHead,
  tokenizer: Tokenizer,
): ScoreInfo => ({
  pooling,
  length,
  activation: scores === 'softmax' ? 'softmax' : 'sigmoid',
  prompt: readModelTemplates(metadata).get('rerank') ?? tokenizer.pairTokens,
});

/** By default, the longest request is limited by the model's context length and by the pool. */
function describeModel(
  options: ResolvedEngineOptions,
  { config, file, tokenizer }: ModelSource,
  spec: KvCacheSpec,
  templates: ChosenTemplates | undefined,
): ModelInfo {
  const { pooledHead: head } = config;
  const chosen = options.pooling === 'rank' ? undefined : options.pooling;
  const pooling = head?.pooling ?? chosen ?? poolingOf(file, config.architecture);
  const scores = head?.scores && scoreInfo(file, head, tokenizer);
  const description = readDescription(file.metadata);
  return {
    ...modelNames(options),
    path: options.model,
    ...(description === undefined ? {} : { description }),
    architecture: config.architecture,
    vocabSize: config.vocabSize,
    ...(tokenizer.hasByteTokens === true ? { hasByteTokens: true } : {}),
    maxModelLen: options.maxModelLen ?? longestRequest(spec, config.contextLength),
    hasChatTemplate: templates !== undefined,
    samplingDefaults: readSamplingDefaults(file.metadata),
    ...(scores === undefined
      ? { embedding: { length: head?.length ?? config.embeddingLength, ...(pooling === undefined ? {} : { pooling }) } }
      : { scores }),
    ...(head === undefined ? {} : { hasPooledHead: true }),
    ...(config.isEncoder === true || scores !== undefined ? { makesNoText: true } : {}),
    ...(templates === undefined ? {} : { chatTemplate: templates.source }),
    ...(templates?.toolTemplate === undefined ? {} : { toolTemplate: templates.toolTemplate }),
  };
}

/**
 * Undefined if there is no template. @throws KvasirError `chatTemplateInvalid`
 */
async function chatRenderers(
  templates: ChosenTemplates | undefined,
  tokenizer: Tokenizer,
  { thread, warn }: { readonly thread: TemplateThread; readonly warn: (message: string) => void },
): Promise<ChatRenderers | undefined> {
  if (templates === undefined) return undefined;
  const textOf = (id: number | undefined): string =>
    id === undefined ? '' : Buffer.from(tokenizer.tokenBytes(id, { special: true })).toString();
  const { source, toolTemplate } = templates;
  const context = { bosToken: textOf(tokenizer.bosTokenId), eosToken: textOf(tokenizer.eosTokenId), toolTemplate };
  const background = new BackgroundTemplate(thread, { source, ...context });
  await background.check();
  let here: FittedTemplate | undefined;
  const warned = new Set<string>();
  const textAndWarnings = ({ text, changes }: FittedPrompt): string => {
    for (const change of changes.filter((one) => !warned.has(one))) {
      warned.add(change);
      warn(`The chat template does not take all conversations: ${change}.`);
    }
    return text;
  };
  return {
    renderChat(messages, renderOptions) {
      here ??= fittedTemplate(source, context);
      return textAndWarnings(here.render(messages, renderOptions));
    },
    renderInBackground: async (messages, renderOptions, signal) =>
      textAndWarnings(await background.render(messages, renderOptions, signal)),
  };
}

/** Seeds for requests without a seed, if the user gives a base seed: the n-th such request gets the n-th seed. */
function seedSequence(seed: number): () => bigint {
  let drawn = 0;
  return () => BigInt(Math.floor(uniform(BigInt(seed), drawn++) * 2 ** 53));
}
