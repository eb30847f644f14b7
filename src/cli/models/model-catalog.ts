import { stat } from 'node:fs/promises';
import { basename, resolve } from 'node:path';
import { nameLengthMax } from '../../base/field-reader.ts';
import { nameMatch } from '../../engine/model-names.ts';
import { checkState, stateNow } from '../../ggml/file-state.ts';
import { downloadedModels } from '../../hub/downloaded-models.ts';
import { modelFile } from '../../hub/model-file.ts';
import { hubName, isHubName, parseHubName } from '../../hub/model-name.ts';
import { downloadedFile, findOrPullModel, pullModel } from '../../hub/pull-model.ts';
import { modelsAmong } from '../../hub/select-model.ts';
import { hubSettings } from '../../hub/settings.ts';
import type { Download } from '../../server/apis/ollama/model-orders.ts';
import type { LoadStatus } from '../../server/loading-routes.ts';
import type { ModelEntry, ModelSource, PreparedModel } from '../../server/models/contract.ts';
import { fileUnreadable, modelFolderTooLarge, modelNameTwice } from '../cli-errors.ts';
import { LoadWatch } from '../load-watch.ts';
import type { ServeFlags } from '../serve.ts';
import { ForkedModel } from './forked-model.ts';
import { entriesDefaultMax, ggufFilesBelow } from './model-files.ts';
import { type ModelLimits, needsOfModel } from './model-needs.ts';

/** The models of a command line. */
export interface GivenModels {
  /** Paths and names on the hub, by the model's name. */
  readonly given: ReadonlyMap<string, string>;
  readonly folder?: string;
  /** Names on the hub that are not given: none, those that are downloaded, or all, which are downloaded when they are asked for. */
  readonly hub: 'none' | 'downloaded' | 'any';
  /** With the settings of this model. */
  flagsOf(name: string): ServeFlags;
  /** A new path for each process. */
  socketPath(): string;
}

interface CatalogEntry extends ModelEntry {
  /** A path or a name on the hub. */
  readonly model: string;
}

const silent = { write: () => undefined };

/** Finds the models of a server: those that are given, files of a folder, and models of the hub. */
export class ModelCatalog implements ModelSource {
  readonly #models: GivenModels;
  readonly #limits: ModelLimits;
  /** At the last look. */
  #inFolder: readonly CatalogEntry[] = [];
  #lastLook: Promise<void> | undefined;
  #nextLook: Promise<void> | undefined;
  /** The last download that was asked for, by model. */
  readonly #pulls = new Map<string, Promise<unknown>>();

  constructor(models: GivenModels, limits: ModelLimits) {
    this.#models = models;
    this.#limits = limits;
  }

  /** @throws fileUnreadable if there is no such folder, modelFolderTooLarge, modelNameTwice */
  async check(signal?: AbortSignal): Promise<void> {
    const { folder } = this.#models;
    if (folder !== undefined) this.#inFolder = await this.#readFolder(folder, { isWhole: true, signal });
    const names = [...this.#given(), ...this.#inFolder].flatMap(({ name, aliases }) => [name, ...aliases]);
    const twice = names.find((name, i) => names.indexOf(name) < i);
    if (twice !== undefined) throw modelNameTwice({ name: twice });
  }

  /** Models in the folder at the last look. */
  get folderCount(): number {
    return this.#inFolder.length;
  }

  async list(): Promise<readonly CatalogEntry[]> {
    const { folder, hub } = this.#models;
    // A folder that cannot be read now has no models now.
    if (folder !== undefined) await this.#look(folder);
    const given = await Promise.all(this.#given().map(withFile));
    const all = [...given, ...this.#inFolder, ...(hub === 'none' ? [] : await this.#downloaded())];
    return [...new Map(all.toReversed().map((entry) => [entry.name, entry])).values()].reverse();
  }

  async find(name: string): Promise<CatalogEntry | undefined> {
    if (name.length > nameLengthMax) return undefined;
    // Ollama's clients write hf.co/owner/name.
    const onHub = hubNameIn(name);
    const isNamed = (entry: CatalogEntry): boolean =>
      entry.name === name || entry.name === onHub || entry.aliases.includes(name);
    const given = this.#given().find(isNamed);
    if (given !== undefined) return given;
    const inFolder = this.#inFolder.find(isNamed);
    if (inFolder !== undefined && (await stat(inFolder.model).catch(() => undefined)) !== undefined) return inFolder;
    if (this.#models.hub === 'any' && isHubName(name)) {
      const wanted = onHub ?? hubName(parseHubName(name));
      return withFile(this.#entryOf(wanted, wanted));
    }
    const all = await this.list();
    return all.find(isNamed) ?? bestMatch(all, name);
  }

  pull(entry: ModelEntry): Download {
    const { model } = entry as CatalogEntry;
    if (!isHubName(model)) return async () => undefined;
    const pull = this.#models.hub === 'any' ? pullModel : findOrPullModel;
    return ({ onProgress, signal }) => {
      // One after the other: the second finds what the first has downloaded.
      const before = this.#pulls.get(model) ?? Promise.resolve();
      const begin = async (): Promise<unknown> => {
        signal.throwIfAborted();
        return pull(model, { onProgress, signal });
      };
      const own = before.then(begin, begin).finally(() => {
        if (this.#pulls.get(model) === own) this.#pulls.delete(model);
      });
      this.#pulls.set(model, own);
      return own;
    };
  }

  async prepare(entry: ModelEntry, onProgress: (status: LoadStatus) => void): Promise<PreparedModel> {
    const { name, model } = entry as CatalogEntry;
    const aliases = this.#models.flagsOf(name).servedModelName ?? [];
    const { onDownloadProgress } = new LoadWatch(model, silent, onProgress);
    const path = await modelFile(model, { onProgress: onDownloadProgress });
    const before = await stateNow(path);
    const { settings, parts, ...needs } = await needsOfModel(path, this.#models.flagsOf(name), this.#limits).catch(
      async (error: unknown) => {
        await checkState(path, before);
        throw error;
      },
    );
    const flags = { ...this.#models.flagsOf(name), ...settings };
    return {
      ...needs,
      checkFiles: async () => {
        for (const part of parts) await checkState(part.path, part.state);
      },
      start: (hooks) => new ForkedModel({ name, aliases, path, flags, socketPath: this.#models.socketPath() }, hooks),
    };
  }

  #given(): CatalogEntry[] {
    return Array.from(this.#models.given, ([name, model]) => this.#entryOf(name, model));
  }

  #entryOf(name: string, model: string): CatalogEntry {
    const { servedModelName = [], loraModules = [] } = this.#models.flagsOf(name);
    return { name, aliases: [...servedModelName, ...loraModules.map((adapter) => adapter.name)], model };
  }

  /** Requests that come together look once. A look that has begun may have missed a file that is new. */
  #look(folder: string): Promise<void> {
    this.#nextLook ??= (async () => {
      await this.#lastLook;
      this.#lastLook = this.#nextLook;
      this.#nextLook = undefined;
      this.#inFolder = await this.#readFolder(folder, { isWhole: false }).catch(() => []);
    })();
    return this.#nextLook;
  }

  async #readFolder(
    folder: string,
    { isWhole, signal }: { readonly isWhole: boolean; readonly signal?: AbortSignal | undefined },
  ): Promise<CatalogEntry[]> {
    const { paths, isCut } = await ggufFilesBelow(folder, { signal }).catch((error: unknown) => {
      if (signal?.aborted === true) throw error;
      const reason = (error as NodeJS.ErrnoException).code ?? 'unknown';
      throw fileUnreadable({ what: 'folder of models', path: folder, reason }, error);
    });
    if (isCut && isWhole) throw modelFolderTooLarge({ path: folder, limit: entriesDefaultMax });
    const models = modelsAmong(paths.map((path) => ({ path })));
    const entries = models.map(({ files: [first] }) => {
      const { path } = first!;
      // Absolute: a file of a folder `hf:owner` is no name of a hub.
      return this.#entryOf(nameOfFile(path), resolve(folder, path));
    });
    const found = await Promise.all(entries.map(withFile));
    return found.filter(({ path }) => path !== undefined).sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  async #downloaded(): Promise<CatalogEntry[]> {
    const models = await downloadedModels(hubSettings().cacheFolder).catch(() => []);
    return models
      .filter(({ receivedBytes }) => receivedBytes === undefined)
      .map(({ name, paths: [path] }) => ({ ...this.#entryOf(name, name), path: path! }));
  }
}

/** The model whose pattern fits a name best, if none has the name itself. */
function bestMatch(entries: readonly CatalogEntry[], name: string): CatalogEntry | undefined {
  let best: { readonly entry: CatalogEntry; readonly match: number } | undefined;
  for (const entry of entries) {
    const match = nameMatch(entry.aliases, name);
    if (match !== undefined && match > (best?.match ?? -1)) best = { entry, match };
  }
  return best?.entry;
}

/** The name of a model that is given without one. */
export const nameOfModel = (model: string): string => (isHubName(model) ? model : nameOfFile(basename(model)));

const nameOfFile = (path: string): string => path.replace(/(-\d{5}-of-\d{5})?\.gguf$/i, '');

/** The short name of a model on the hub; undefined: the name has another form. */
function hubNameIn(name: string): string | undefined {
  try {
    return isHubName(name) ? hubName(parseHubName(name)) : undefined;
  } catch {
    return undefined;
  }
}

async function withFile(entry: CatalogEntry): Promise<CatalogEntry> {
  const path = isHubName(entry.model) ? await downloadedFile(entry.model).catch(() => undefined) : entry.model;
  const found = path === undefined ? undefined : await stat(path).catch(() => undefined);
  return path !== undefined && found?.isFile() === true ? { ...entry, path } : entry;
}
