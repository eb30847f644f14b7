import { type Command, InvalidArgumentError } from 'commander';
import { backgroundTimers } from '../../base/background-timers.ts';
import { formatBytes } from '../../base/bytes.ts';
import { systemClock } from '../../base/clock.ts';
import { memoryLimit } from '../../base/memory-limit.ts';
import { didYouMean } from '../../base/nearest-name.ts';
import { invalidParameter } from '../../core/errors.ts';
import type { EngineEvent } from '../../engine/contract.ts';
import type { GpuMemory } from '../../ggml/device.ts';
import { isHubName } from '../../hub/model-name.ts';
import { isLogged, logLine } from '../../server/http/event-log.ts';
import { ModelPool } from '../../server/models/model-pool.ts';
import { servedModels } from '../../server/models/served-models.ts';
import type { ServedApp } from '../../server/server.ts';
import { addressOf } from '../banner.ts';
import { configFileInvalid, modelNameTwice } from '../cli-errors.ts';
import { type ModelSection, setFlag } from '../config-file.ts';
import type { CliContext } from '../context.ts';
import { readKvTransferFlags } from '../kv-transfer-flags.ts';
import type { ServeFlags } from '../serve.ts';
import { readSpeculationFlags } from '../speculation-flags.ts';
import { gpuOfMachine } from './machine-gpu.ts';
import { ModelCatalog, nameOfModel } from './model-catalog.ts';
import { SocketFolder } from './socket-folder.ts';

/** Of the memory of the machine or container, without --models-memory. */
const MEMORY_PART = 0.8;

export interface SeveralModels {
  readonly app: ServedApp;
  /** At the start. */
  readonly count: number;
  banner(port: number, version: string): string;
  /** Ends all processes at once. */
  close(): Promise<void>;
}

export interface SeveralParts {
  /** A command with all defaults. */
  fresh(): Command;
  readonly logDestination: { write(line: string): void };
  readonly shareOnGpu: CliContext['shareOnGpu'];
  /** Rejects if the model with these flags cannot be served: what a server of this model alone would refuse at its start. */
  check(model: string, flags: ServeFlags): Promise<void>;
  /** Ends the look at folders. */
  readonly signal: AbortSignal;
}

/** @throws errors of the command line and of the configuration file */
export async function openSeveral(
  models: readonly string[],
  flags: ServeFlags,
  { fresh, logDestination, shareOnGpu, check, signal }: SeveralParts,
): Promise<SeveralModels> {
  if (flags.servedModelName !== undefined)
    throw invalidParameter({
      parameter: 'servedModelName',
      expected: 'absent for several models, whose names are in the section `models` of the file of --config',
      actual: flags.servedModelName.join(', '),
    });
  const sections = readSections(flags, fresh);
  const memoryMaxBytes = flags.modelsMemory ?? Math.floor(memoryLimit().bytes * MEMORY_PART);
  const log = (level: 'info' | 'warn' | 'error', message: string, fields: EngineEvent['fields']): void => {
    if (isLogged(level, flags.logLevel)) logDestination.write(logLine(level, message, fields));
  };
  const mayUseGpu = [flags, ...sections.values()].some(({ device, gpuLayers }) => device !== 'cpu' && gpuLayers !== 0);
  const gpu = mayUseGpu
    ? await gpuOfMachine().catch((error: Error) => {
        log('error', `the memory of the GPU is unknown, so it is not limited: ${error.message}`, {});
        return undefined;
      })
    : undefined;
  const given = givenModels(models, flags.models ?? new Map());
  const flagsOf = (name: string): ServeFlags => sections.get(name) ?? flags;
  await Promise.all(Array.from(given, ([name, model]) => check(model, flagsOf(name))));
  const sockets = new SocketFolder();
  const catalog = new ModelCatalog(
    {
      given,
      hub: flags.hubModels,
      ...(flags.modelDir === undefined ? {} : { folder: flags.modelDir }),
      flagsOf,
      socketPath: () => sockets.next(),
    },
    { memoryMaxBytes, shareOnGpu, ...(gpu === undefined ? {} : { gpu }) },
  );
  await catalog.check(signal);
  const pool = new ModelPool(catalog, {
    memoryMaxBytes,
    ...(gpu?.freeBytes === undefined ? {} : { gpuMaxBytes: gpu.freeBytes }),
    idleTimeoutMs: flags.modelIdleTimeout === 0 ? Infinity : flags.modelIdleTimeout * 1000,
    responseStoreMaxBytes: flags.responseStoreSize,
    waitMaxMs: flags.maxLoadWait * 1000,
    timers: backgroundTimers,
    clock: systemClock,
    log,
  });
  const entries = await catalog.list();
  const names = entries.map(({ name }) => name);
  for (const message of missingModels(names, catalog.folderCount, flags)) log('warn', message, {});
  return {
    app: servedModels(pool),
    count: names.length,
    banner: (port, version) => banner({ names, flags, memoryMaxBytes, gpu }, port, version),
    async close() {
      await pool.close();
      sockets.remove();
    },
  };
}

/** @throws modelNameTwice */
function givenModels(
  models: readonly string[],
  sections: ReadonlyMap<string, ModelSection>,
): ReadonlyMap<string, string> {
  const given = new Map<string, string>();
  const all = [
    ...models.map((model): [string, string] => [nameOfModel(model), model]),
    ...[...sections].flatMap(([name, section]) => {
      const model = section.get('model');
      return typeof model === 'string' ? [[name, model] as [string, string]] : [];
    }),
  ];
  for (const [name, model] of all) {
    if (given.has(name)) throw modelNameTwice({ name });
    given.set(name, model);
  }
  return given;
}

/** The flags of each model with a section. @throws configFileInvalid */
function readSections(flags: ServeFlags, fresh: () => Command): ReadonlyMap<string, ServeFlags> {
  return new Map(
    Array.from(flags.models ?? [], ([name, section]): [string, ServeFlags] => {
      try {
        return [name, withSection(flags, section, fresh())];
      } catch (error) {
        if (!(error instanceof InvalidArgumentError)) throw error;
        throw configFileInvalid({ path: 'of --config', reason: `\`models.${name}\`: ${error.message}` }, error);
      }
    }),
  );
}

/** Flags of the engine, and these. The other flags concern the server. */
const ofModels = new Set([
  ...['served-model-name', 'tool-call-parser', 'reasoning-parser', 'seed'],
  ...['lora-modules', 'max-loras', 'max-lora-rank'],
]);

/**
 * Flags that a section gives replace those of the server. Flags that together make one setting, such as those of KV transfer, replace all of
 * the server's.
 */
function withSection(flags: ServeFlags, section: ModelSection, command: Command): ServeFlags {
  const allowed = command.options.filter(
    ({ long, helpGroupHeading }) => helpGroupHeading === 'Engine:' || ofModels.has(long?.slice(2) ?? ''),
  );
  const names = allowed.flatMap(({ long }) => long?.slice(2) ?? []);
  for (const [name, value] of section) {
    if (name === 'model') {
      if (typeof value !== 'string') throw new InvalidArgumentError('`model`: It must be a path or a name.');
      continue;
    }
    if (!names.includes(name))
      throw new InvalidArgumentError(`\`${name}\` is no flag of a model.${didYouMean(name, [...names, 'model'])}`);
    try {
      setFlag(command, name, value);
    } catch (error) {
      throw new InvalidArgumentError(`\`${name}\`: ${(error as Error).message}`);
    }
  }
  readKvTransferFlags(command, []);
  readSpeculationFlags(command);
  const own = Object.entries(command.opts<Record<string, unknown>>()).filter(
    ([name, value]) => value !== undefined && command.getOptionValueSource(name) !== 'default',
  );
  return { ...flags, ...(Object.fromEntries(own) as Partial<ServeFlags>) };
}

/** What the command line names and is not there now. It may come later, so it is no error. */
function missingModels(
  names: readonly string[],
  folderCount: number,
  { modelDir, hubModels, models = new Map() }: ServeFlags,
): string[] {
  const messages: string[] = [];
  if (modelDir !== undefined && folderCount === 0)
    messages.push(
      `There is no model in ${modelDir}: no file below it has a name that ends with .gguf. The server finds models that are put there later.`,
    );
  if (hubModels === 'downloaded' && !names.some(isHubName))
    messages.push('No model is downloaded. `kvasir pull` downloads one, and the server then finds it.');
  for (const name of models.keys())
    if (!names.includes(name) && !(hubModels === 'any' && isHubName(name)))
      messages.push(
        `The section \`models.${name}\` is of no model: none has this name now. Give the section a line \`model: <path>\`, or correct its name.`,
      );
  return messages;
}

const SHOWN_MAX = 10;

function banner(
  {
    names,
    flags,
    memoryMaxBytes,
    gpu,
  }: {
    readonly names: readonly string[];
    readonly flags: ServeFlags;
    readonly memoryMaxBytes: number;
    readonly gpu: GpuMemory | undefined;
  },
  port: number,
  version: string,
): string {
  const address = addressOf(flags, port);
  const onGpu = gpu?.freeBytes === undefined ? '' : `, and ${formatBytes(gpu.freeBytes)} on ${gpu.description}`;
  const shown = names.slice(0, SHOWN_MAX).map((name) => `            ${name}\n`);
  const others = names.length > SHOWN_MAX ? `            and ${names.length - SHOWN_MAX} more\n` : '';
  return `
  Kvasir ${version}
  models    ${names.length}, loaded when a request asks for them
${shown.join('')}${others}  memory    ${formatBytes(memoryMaxBytes)} for loaded models (--models-memory)${onGpu}
  address   ${address}${flags.host === '127.0.0.1' ? '  (this machine only; --host 0.0.0.0 for all)' : ''}

  Chat in a browser: ${address}
  Press Ctrl-C to stop.

`;
}
