import { Command, InvalidArgumentError, Option } from 'commander';
import type { KvasirError } from '../base/errors.ts';
import { demoModelPath } from '../base/package-files.ts';
import type { LoraModule } from '../engine/adapters.ts';
import type { AsyncEngine, EngineEvent } from '../engine/contract.ts';
import { type EngineOptions, engineDefaults } from '../engine/options.ts';
import { modelFile } from '../hub/model-file.ts';
import { eventLog } from '../server/http/event-log.ts';
import { isHostPattern } from '../server/http/host-check.ts';
import { type LogLevel, logOf } from '../server/http/log-format.ts';
import type { Server, ServerOptions } from '../server/server.ts';
import { serverDefaults } from '../server/server-options.ts';
import { type ReasoningFormat, reasoningFormats, type ToolFormat, toolFormats } from '../tools/formats.ts';
import { addEngineFlags, bytesFlag, engineOptionsOf, integerFrom, listFlag, oneOf, repeated } from './args.ts';
import { addressOf, type BannerFlags, banner, servedFields } from './banner.ts';
import { cannotListen, portInUse } from './cli-errors.ts';
import type { ModelSection } from './config-file.ts';
import type { CliContext, ExitCode } from './context.ts';
import { handleHangUp } from './hang-up.ts';
import { aborted, Interruption, orInterrupted } from './interrupt.ts';
import { type KeyLimitFlags, keyLimitsFlag, keyLimitsOf } from './key-limits-flag.ts';
import { LoadWatch } from './load-watch.ts';
import type { SeveralModels, SeveralParts } from './models/several-models.ts';
import { noticesOf } from './notices.ts';
import { openTraces, otlpEndpoint } from './otlp-traces.ts';
import { ServerEnd } from './server-end.ts';
import { ServiceNotifier } from './service-notifier.ts';
import { startWarnings } from './start-warnings.ts';
import { readChatTemplate } from './text-input.ts';
import { addTlsFlags, renewTlsAtHangUp, type TlsFlags, tlsIdentityOf } from './tls-flags.ts';

export interface ServeFlags extends BannerFlags, TlsFlags {
  readonly port: number;
  readonly servedModelName?: readonly string[];
  readonly modelDir?: string;
  readonly hubModels: 'none' | 'downloaded' | 'any';
  readonly modelsMemory?: number;
  readonly modelIdleTimeout: number;
  readonly maxLoadWait: number;
  /** The section of the file of --config. */
  readonly models?: ReadonlyMap<string, ModelSection>;
  readonly adminKey?: string;
  readonly apiKeyLimits?: KeyLimitFlags;
  readonly allowedHosts?: readonly string[];
  readonly allowedOrigins?: readonly string[];
  readonly rootPath?: string;
  readonly maxBodySize: number;
  readonly maxRequestMemory: number;
  readonly maxTotalRequestMemory: number;
  readonly responseStoreSize: number;
  readonly clientTimeout: number;
  readonly shutdownTimeout: number;
  readonly enableFaultInjection?: boolean;
  readonly loraModules?: readonly LoraModule[];
  readonly maxLoras: number;
  readonly maxLoraRank: number;
  readonly enableRuntimeLora?: boolean;
  readonly strictFields?: boolean;
  readonly logLevel: LogLevel;
  readonly logFormat: 'text' | 'json';
  readonly otlpTracesEndpoint?: string;
  readonly toolCallParser: ToolFormat | 'auto';
  readonly reasoningParser: ReasoningFormat | 'auto' | 'none';
}

/** Flags of the server that `--help` shows. */
const firstFlags = new Set(
  ['config', 'host', 'port', 'served-model-name', 'api-key', 'allowed-hosts', 'allowed-origins', 'lora-modules']
    .concat(['tool-call-parser', 'reasoning-parser', 'log-level', 'ssl-certfile', 'ssl-keyfile'])
    .concat(['model-dir', 'hub-models', 'models-memory'])
    .map((name) => `--${name}`),
);

export function serveCommand(context: CliContext, exit: (code: ExitCode) => void): Command {
  const command = new Command('serve')
    .summary('serve models over the OpenAI API')
    .description('Serve a GGUF model, or several, over the OpenAI API.')
    .argument(
      '[models...]',
      'path of a GGUF file, or a name like hf:owner/name:Q8_0 (default: the bundled demo model); several are loaded when requests ask for them',
    )
    .option('--config <file>', 'YAML file with flags, like port: 9000; flags of the command line win')
    // vLLM listens on all interfaces. The default here is this machine alone, because the server requires no key by
    // default. A laptop must not serve all machines of a public network.
    .option('--host <address>', 'address to listen on; 0.0.0.0 for all', '127.0.0.1')
    .option('--port <port>', 'port to listen on; 0 for any', integerFrom(0, 65_535), 8000)
    .option(
      '--served-model-name <name>',
      "the model's name in the API (default: its file's name); may be repeated for further names; 'claude-*' for all that begin so",
      repeated,
    )
    .addOption(
      new Option('--api-key <key>', 'key that clients must send; may be repeated, and each key is allowed')
        .env('KVASIR_API_KEY')
        .argParser(keyFlag),
    )
    .addOption(
      new Option(
        '--admin-key <key>',
        'key for endpoints that concern all clients, such as those that clear tiers (default: the only API key, or none)',
      )
        .env('KVASIR_ADMIN_KEY')
        .argParser((key) => keyFlag(key, undefined)[0]),
    )
    .option(
      '--api-key-limits <json>',
      'keys with limits of running and waiting completions, like {"team-a":{"key":"...","max_running":4,"max_waiting":16}}; "*": of each --api-key',
      keyLimitsFlag,
    )
    .option(
      '--allowed-hosts <names>',
      'without an API key: names by which clients call the server, like kvasir,*.example.com, besides local names and IP addresses; * for all',
      hostsFlag,
    )
    .option(
      '--allowed-origins <origins>',
      'web pages whose scripts may call the API, like https://example.com,https://example.org; * for all (default: none)',
      listFlag,
    )
    .option(
      '--root-path <path>',
      'path before every endpoint, for a proxy that does not remove it, like /llm',
      rootFlag,
    )
    .addOption(
      new Option('--max-body-size <bytes>', 'largest request, like 8MiB')
        .argParser(bytesFlag)
        .default(serverDefaults.bodyMaxBytes, '8MiB'),
    )
    .addOption(
      new Option('--max-request-memory <bytes>', 'largest memory that the answer to one request may need, like 128MiB')
        .argParser(bytesFlag)
        .default(serverDefaults.requestMaxBytes, '128MiB'),
    )
    .addOption(
      new Option('--max-total-request-memory <bytes>', 'the same for all requests together, with their bodies')
        .argParser(bytesFlag)
        .default(serverDefaults.requestsMaxBytes, '1GiB'),
    )
    .option(
      '--client-timeout <seconds>',
      'time after which a client that does not read its answer, or does not send its body, is disconnected',
      integerFrom(1, 86_400),
      serverDefaults.clientTimeoutMs / 1000,
    )
    .addOption(
      new Option('--response-store-size <bytes>', 'memory for the stored responses of /v1/responses, like 64MiB')
        .argParser(bytesFlag)
        .default(serverDefaults.responseStoreMaxBytes, '64MiB'),
    )
    .option(
      '--shutdown-timeout <seconds>',
      'time limit for running requests after SIGTERM; a second signal ends the server at once',
      integerFrom(0, 86_400),
      30,
    )
    .option(
      '--lora-modules <name=path...>',
      'LoRA adapters in GGUF, which requests choose by `model`; also in JSON, like \'{"name":"sql","path":"sql-lora.gguf"}\'',
      loraModuleFlag,
    )
    .option('--max-loras <n>', 'largest number of LoRA adapters in memory', integerFrom(1), engineDefaults.maxLoras)
    .option('--max-lora-rank <n>', 'largest rank of a LoRA adapter', integerFrom(1), engineDefaults.maxLoraRank)
    .option(
      '--enable-runtime-lora',
      'allow clients to load and unload LoRA adapters, which are files of this machine; needs an API key',
    )
    .option(
      '--strict-fields',
      'refuse requests with unknown fields or with max_tokens beyond the context; default: a warning',
    )
    .option('--seed <n>', 'base seed for requests without a seed (default: random)', integerFrom(0))
    .addOption(
      oneOf(
        '--tool-call-parser <format>',
        'how the model writes calls of tools; auto: what its chat template asks for',
        ['auto', ...toolFormats],
        'auto',
      ),
    )
    .addOption(
      oneOf(
        '--reasoning-parser <format>',
        'how the model writes its thoughts, which become reasoning_content; auto: by its chat template; none: they stay in the text',
        ['auto', 'none', ...reasoningFormats],
        'auto',
      ),
    )
    .option(
      '--enable-fault-injection',
      'allow clients to lose blocks of the KV pool, to see recoveries on the page; for experiments',
    )
    .option(
      '--metrics-by-salt',
      'metrics of blocks and bytes in host memory and on disks for each cache salt, by a hash of the salt; needs --kv-tier',
    )
    .option(
      '--otlp-traces-endpoint <url>',
      'send OpenTelemetry spans of requests to this OTLP receiver (HTTP), like http://localhost:4318/v1/traces',
      otlpEndpoint,
    )
    .addOption(oneOf('--log-level <level>', 'least level to log', ['silent', 'error', 'warn', 'info', 'debug'], 'info'))
    .addOption(oneOf('--log-format <format>', 'format of log lines', ['text', 'json'], 'text'));
  addTlsFlags(command);
  addModelsFlags(command);
  addEngineFlags(command, ({ long }) => firstFlags.has(long ?? ''));
  command.addHelpText(
    'after',
    `
Examples:
  kvasir serve                                  the bundled demo model on http://127.0.0.1:8000
  kvasir serve qwen3-0.6b-q8_0.gguf --port 9000
  kvasir serve hf:Qwen/Qwen3-0.6B-GGUF:Q8_0     downloaded from Hugging Face once; see kvasir pull --help
  kvasir serve --model-dir /var/models --models-memory 24GiB
  kvasir serve model.gguf --host 0.0.0.0 --api-key secret --kv-cache-memory 8GiB`,
  );
  const fresh = (): Command => serveCommand(context, () => undefined);
  return command.action(async (models: readonly string[], flags: ServeFlags) => {
    exit(await serve(models, flags, context, fresh));
  });
}

/** `name=path`, or vLLM's form in JSON. */
function loraModuleFlag(text: string, before: readonly LoraModule[] | undefined): LoraModule[] {
  const [, name, path] = /^([^=]+)=(.+)$/s.exec(text) ?? [];
  const module = text.trim().startsWith('{') ? moduleOfJson(text) : { name, path, scale: undefined };
  const scale = typeof module?.scale === 'number' ? { scale: module.scale } : {};
  const isWhole = typeof module?.name === 'string' && typeof module.path === 'string' && module.name !== '';
  if (isWhole && module.path !== '' && (module.scale === undefined || 'scale' in scale))
    return [...(before ?? []), { name: module.name as string, path: module.path as string, ...scale }];
  throw new InvalidArgumentError(
    'It must be name=path, or {"name":"...","path":"..."}, also with "scale", a number; put the model before this flag.',
  );
}

function moduleOfJson(text: string): Partial<Record<'name' | 'path' | 'scale', unknown>> | undefined {
  try {
    return JSON.parse(text) as object;
  } catch {
    return undefined;
  }
}

/** Flags of a server with several models. Such a server has a process for each. */
function addModelsFlags(command: Command): void {
  command
    .optionsGroup('Several models:')
    .option('--model-dir <folder>', 'serve all models in this folder and below; their names are those of the files')
    .addOption(
      oneOf(
        '--hub-models <which>',
        'also serve models by names like hf:owner/name:Q8_0: those that are downloaded, or any, which are downloaded when a request asks for them',
        ['none', 'downloaded', 'any'],
        'none',
      ),
    )
    .option(
      '--models-memory <bytes>',
      'memory of all loaded models, like 24GiB, without that of a GPU (default: 80 % of the memory of the machine or container)',
      bytesFlag,
    )
    .option(
      '--model-idle-timeout <seconds>',
      'unload a model that has had no request for this time; 0: never',
      integerFrom(0, 2_000_000),
      0,
    )
    .option(
      '--max-load-wait <seconds>',
      'how long a request waits for a model that is being loaded; then it gets status 503',
      integerFrom(0, 86_400),
      serverDefaults.loadWaitMaxMs / 1000,
    )
    .optionsGroup('Options:');
}

/** A header cannot have spaces inside a key, and an empty key would allow everyone. */
function keyFlag(key: string, before: readonly string[] | undefined): string[] {
  if (/^[^\s]+$/.test(key)) return repeated(key, before);
  throw new InvalidArgumentError('It must be a text without spaces.');
}

function hostsFlag(text: string): string[] {
  const hosts = listFlag(text);
  if (hosts.every(isHostPattern)) return hosts;
  throw new InvalidArgumentError('It must be names between commas, like kvasir,*.example.com, without https://.');
}

function rootFlag(path: string): string {
  if (/^(\/[^/?#\s]+)+$/.test(path)) return path;
  throw new InvalidArgumentError('It must begin with / and end without it, like /llm.');
}

async function serve(
  models: readonly string[],
  flags: ServeFlags,
  context: CliContext,
  fresh: () => Command,
): Promise<ExitCode> {
  const model = models[0] ?? demoModelPath();
  const notices = noticesOf(context.stderr, flags);
  const end = new ServerEnd(flags.shutdownTimeout, notices);
  using interruption = new Interruption(context, end.limits);
  const { signal } = interruption;
  const logDestination = logOf(context.stderr, flags.logFormat);
  const onEvent = eventLog(logDestination, flags.logLevel);
  let engine: AsyncEngine | undefined;
  const isAlive = (): boolean => engine?.health().status !== 'broken';
  using manager = ServiceNotifier.open({ environment: process.env, onEvent, isAlive });
  const watch = new LoadWatch(model, notices, ({ message }) => manager?.loading(message));
  signal.addEventListener('abort', () => manager?.stopping(flags.shutdownTimeout));
  // Imported here, because fastify would double the start time of the other commands.
  const { Server } = await import('../server/server.ts');
  const tls = await orInterrupted(tlsIdentityOf(flags), signal);
  const traces = await openTraces(flags.otlpTracesEndpoint, context.version, onEvent);
  if (signal.aborted) return interruption.exitCode;
  const options = { ...serverOptionsOf(flags), version: context.version, logDestination, ...(tls && { tls }) };
  const several = areSeveral(models, flags)
    ? await orInterrupted(openModels(models, flags, context, { fresh, logDestination, signal }), signal)
    : undefined;
  if (signal.aborted) return interruption.exitCode;
  const server = new Server(several?.app ?? { loadStatus: () => watch.status() }, options);
  const { signals } = context;
  const onRenewed = (message: string): unknown => notices.write(`${message}\n`);
  const [onBegin, onEnd] = [() => manager?.reloading(), () => manager?.reloaded()];
  using _hangUp = tls
    ? renewTlsAtHangUp(server, flags, { signals, onEvent, onRenewed, onBegin, onEnd })
    : handleHangUp(context, interruption, { onEvent, onBegin, onEnd });
  try {
    const settings = await readSettings(flags);
    const check = context.checkEngineOptions?.(engineOptionsOf(model, flags, settings), several === undefined);
    await orInterrupted(check ?? Promise.resolve(), signal);
    if (signal.aborted) return interruption.exitCode;
    for (const warning of startWarnings(flags)) onEvent(warning);
    // Before the model is loaded, which can take minutes: probes get an answer, and a port in use is an error at once.
    const port = await listen(server, flags.host, flags.port);
    if (several !== undefined) {
      notices.tell(several.banner(port, context.version), 'serving', {
        models: several.count,
        address: addressOf(flags, port),
      });
      manager?.ready(`The server serves ${several.count} models on port ${port}.`);
      await aborted(signal);
      return (await end.drain(server)) ? 0 : interruption.exitCode;
    }
    manager?.loading(watch.status().message);
    engine = await orInterrupted(openEngine(model, flags, context, { settings, watch, onEvent, signal }), signal);
    if (engine === undefined) return interruption.exitCode;
    await traces?.follow(engine);
    await server.serve(engine);
    notices.tell(banner(engine, flags, port, context.version), 'serving', servedFields(engine, flags, port));
    manager?.ready(`The server serves ${engine.model.name} on port ${port}.`);
    await aborted(signal);
    const isDrained = await end.drain(server);
    if (flags.kvTransferConfig !== undefined) notices.write(transferSummary(engine));
    return isDrained ? 0 : interruption.exitCode;
  } finally {
    await server.close();
    // The requests that `close` aborts have spans too.
    await Promise.all([engine?.close(), several?.close(), traces?.close(end.tracesMs)]);
  }
}

async function openModels(
  models: readonly string[],
  flags: ServeFlags,
  context: CliContext,
  parts: Pick<SeveralParts, 'fresh' | 'logDestination' | 'signal'>,
): Promise<SeveralModels> {
  const { openSeveral } = await import('./models/several-models.ts');
  return openSeveral(models, flags, {
    ...parts,
    shareOnGpu: context.shareOnGpu?.bind(context),
    check: async (each, own) => context.checkEngineOptions?.(engineOptionsOf(each, own, await readSettings(own)), true),
  });
}

/** A server with one model has it in its own process, from its start to its end. */
const areSeveral = (models: readonly string[], flags: ServeFlags): boolean =>
  models.length > 1 || flags.modelDir !== undefined || flags.hubModels !== 'none' || flags.models !== undefined;

export function serverOptionsOf(flags: ServeFlags): Omit<ServerOptions, 'version'> {
  return {
    bodyMaxBytes: flags.maxBodySize,
    requestMaxBytes: flags.maxRequestMemory,
    requestsMaxBytes: flags.maxTotalRequestMemory,
    maxNumSeqs: flags.maxNumSeqs,
    clientTimeoutMs: flags.clientTimeout * 1000,
    loadWaitMaxMs: flags.maxLoadWait * 1000,
    responseStoreMaxBytes: flags.responseStoreSize,
    logLevel: flags.logLevel,
    enableFaultInjection: flags.enableFaultInjection === true,
    enableRuntimeLora: flags.enableRuntimeLora === true,
    strictFields: flags.strictFields === true,
    ...(flags.apiKey === undefined ? {} : { apiKey: flags.apiKey }),
    ...(flags.adminKey === undefined ? {} : { adminKey: flags.adminKey }),
    ...(flags.apiKeyLimits === undefined ? {} : { apiKeyLimits: keyLimitsOf(flags.apiKeyLimits, flags.apiKey) }),
    // The server was told this name, so it is no page's own.
    allowedHosts: [flags.host, ...(flags.allowedHosts ?? [])],
    ...(flags.allowedOrigins === undefined ? {} : { allowedOrigins: flags.allowedOrigins }),
    ...(flags.rootPath === undefined ? {} : { rootPath: flags.rootPath }),
    ...(flags.reasoningParser === 'auto' ? {} : { reasoningFormat: flags.reasoningParser }),
    ...(flags.toolCallParser === 'auto' ? {} : { toolFormat: flags.toolCallParser }),
  };
}

type EngineSettings = Pick<
  EngineOptions,
  'servedModelName' | 'seed' | 'chatTemplate' | 'loraModules' | 'maxLoras' | 'maxLoraRank'
>;

/** The settings of the engine that `engineOptionsOf` does not take from the flags. */
export async function readSettings(flags: ServeFlags): Promise<EngineSettings> {
  const { chatTemplate: path, servedModelName, seed, loraModules, maxLoras, maxLoraRank } = flags;
  const chatTemplate = path === undefined ? undefined : await readChatTemplate(path);
  return {
    maxLoras,
    maxLoraRank,
    ...(loraModules === undefined ? {} : { loraModules }),
    ...(servedModelName === undefined ? {} : { servedModelName }),
    ...(seed === undefined ? {} : { seed }),
    ...(chatTemplate === undefined ? {} : { chatTemplate }),
  };
}

interface Loading {
  readonly settings: EngineSettings;
  readonly watch: LoadWatch;
  readonly signal: AbortSignal;
  onEvent(event: EngineEvent): void;
}

/** Finds or downloads the model, and loads it. */
export async function openEngine(
  model: string,
  flags: ServeFlags,
  context: CliContext,
  { settings, watch, onEvent, signal }: Loading,
): Promise<AsyncEngine> {
  const { onDownloadProgress, onProgress, onDigestProgress } = watch;
  const path = await modelFile(model, { signal, onProgress: onDownloadProgress });
  return context.createEngine({
    ...engineOptionsOf(path, flags, { onProgress, onDigestProgress, ...settings }),
    onEvent,
  });
}

async function listen(server: Server, host: string, port: number): Promise<number> {
  try {
    return await server.listen(port, host);
  } catch (error) {
    throw listenError(error, host, port);
  }
}

function listenError(error: unknown, host: string, port: number): KvasirError {
  const code = (error as NodeJS.ErrnoException).code ?? 'unknown';
  return code === 'EADDRINUSE' ? portInUse({ host, port }, error) : cannotListen({ host, port, reason: code }, error);
}

/** Blocks that are stored while the engine closes are not counted. */
function transferSummary(engine: AsyncEngine): string {
  const { transfers, externalTokens } = engine.stats();
  const { savedBlocks = 0, loadedBlocks = 0, loadFailed = {} } = transfers.connector;
  const reasons = Object.entries(loadFailed).map(([reason, count]) => `${reason} ${count}`);
  const failed = `${transfers.failedLoads} failed${reasons.length === 0 ? '' : ` (${reasons.join(', ')})`}`;
  return `KV outside: ${savedBlocks} blocks stored, ${loadedBlocks} loaded for ${externalTokens} tokens, ${failed}\n`;
}
