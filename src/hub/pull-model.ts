import { stat, statfs } from 'node:fs/promises';
import { makeFolders } from '../base/make-folders.ts';
import { downloadFile } from './download.ts';
import { diskTooSmall, hubFolderUnusable, hubOffline } from './errors.ts';
import { HubCache } from './hub-cache.ts';
import { HubClient, type HubFile } from './hub-client.ts';
import { type HubModel, hubName, parseHubName } from './model-name.ts';
import { Retries, type RetryOptions } from './retries.ts';
import { modelsAmong, selectModel } from './select-model.ts';
import { type HubSettings, hubSettings } from './settings.ts';

export interface PullOptions {
  readonly settings?: HubSettings | undefined;
  readonly retries?: RetryOptions | undefined;
  /** Called while files are downloaded; not called if all are there. */
  readonly onProgress?: ((receivedBytes: number, totalBytes: number) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** The path of a model's file, or of the first part of a split one. Asks the hub only if the model is not downloaded. */
export const findOrPullModel = async (name: string, options: PullOptions = {}): Promise<string> =>
  (await downloadedFile(name, options)) ?? pullModel(name, options);

/** The same for a model that is downloaded. */
export async function downloadedFile(name: string, { settings }: PullOptions = {}): Promise<string | undefined> {
  const model = parseHubName(name);
  const { cacheFolder } = settings ?? hubSettings();
  const models = modelsAmong(await new HubCache(cacheFolder).filesOf(model));
  if (models.length === 0) return undefined;
  try {
    return selectModel(model, models).files[0]!.location;
  } catch {
    // Another model of this repository is downloaded.
    return undefined;
  }
}

/**
 * Downloads what is missing of a model, in the version that its revision means now. Returns the path of its file, or of
 * the first part of a split one.
 */
export async function pullModel(name: string, options: PullOptions = {}): Promise<string> {
  const model = parseHubName(name);
  const settings = options.settings ?? hubSettings();
  if (settings.isOffline) throw hubOffline({ name: hubName(model) });
  return new Pull(model, settings, options).run();
}

class Pull {
  readonly #model: HubModel;
  readonly #options: PullOptions;
  readonly #retries: Retries;
  readonly #client: HubClient;
  readonly #cache: HubCache;

  constructor(model: HubModel, settings: HubSettings, options: PullOptions) {
    this.#model = model;
    this.#options = options;
    this.#retries = new Retries(options.retries);
    this.#client = new HubClient(settings, this.#retries);
    this.#cache = new HubCache(settings.cacheFolder);
  }

  async run(): Promise<string> {
    const { signal } = this.#options;
    const { commit, files } = await this.#client.revision(this.#model, signal);
    const models = modelsAmong(files);
    const { files: parts } = selectModel(this.#model, models, models.length > 0 ? '' : await this.#suggestion());
    await this.#download(commit, parts);
    await this.#cache.setRef(this.#model, commit);
    return this.#cache.location(this.#model.repository, commit, parts[0]!.path);
  }

  async #download(commit: string, parts: readonly HubFile[]): Promise<void> {
    const { onProgress, signal } = this.#options;
    const { repository } = this.#model;
    const missing: MissingFile[] = [];
    for (const file of parts) {
      const location = this.#cache.location(repository, commit, file.path);
      if ((await sizeOf(location)) === file.bytes) continue;
      const blobPath = await this.#cache.blobPath(repository, file.blob);
      if ((await sizeOf(blobPath)) === file.bytes) await this.#cache.place(repository, location, blobPath);
      else missing.push({ file, location, blobPath });
    }
    await this.#checkSpace(missing);
    const totalBytes = parts.reduce((sum, { bytes }) => sum + bytes, 0);
    let doneBytes = totalBytes - missing.reduce((sum, { file }) => sum + file.bytes, 0);
    for (const { file, location, blobPath } of missing) {
      await downloadFile({
        file,
        blobPath,
        open: (offset) => this.#client.open({ repository, commit, file, offset }, signal),
        retries: this.#retries,
        onProgress: (receivedBytes) => onProgress?.(doneBytes + receivedBytes, totalBytes),
        signal,
      });
      await this.#cache.place(repository, location, blobPath);
      doneBytes += file.bytes;
    }
  }

  async #checkSpace(missing: readonly MissingFile[]): Promise<void> {
    let neededBytes = 0;
    for (const { file, blobPath } of missing) {
      neededBytes += Math.max(0, file.bytes - ((await sizeOf(HubCache.incompletePath(blobPath))) ?? 0));
    }
    const { folder } = this.#cache;
    const freeBytes = await freeBytesOf(folder);
    if (freeBytes < neededBytes) throw diskTooSmall({ name: hubName(this.#model), neededBytes, folder, freeBytes });
  }

  /** For a repository without GGUF files: repositories that have them. */
  async #suggestion(): Promise<string> {
    const names = await this.#client.quantizationsOf(this.#model.repository, this.#options.signal).catch(() => []);
    return names.length === 0 ? '' : ` These have some, made from it: ${names.map((name) => `hf:${name}`).join(', ')}.`;
  }
}

interface MissingFile {
  readonly file: HubFile;
  readonly location: string;
  readonly blobPath: string;
}

const sizeOf = async (path: string): Promise<number | undefined> => (await stat(path).catch(() => undefined))?.size;

async function freeBytesOf(folder: string): Promise<number> {
  try {
    await makeFolders(folder);
    const { bavail, bsize } = await statfs(folder);
    return bavail * bsize;
  } catch (error) {
    throw hubFolderUnusable({ folder, reason: (error as Error).message }, error);
  }
}
