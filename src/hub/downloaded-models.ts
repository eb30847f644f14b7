import { modelNotDownloaded } from './errors.ts';
import { type CachedFile, HubCache } from './hub-cache.ts';
import { hubName, parseHubName } from './model-name.ts';
import { isSelected, modelsAmong } from './select-model.ts';

/** A model in the folder of downloaded models. */
export interface DownloadedModel {
  /** Its name for the commands. */
  readonly name: string;
  readonly bytes: number;
  /** Of a download that stopped: the bytes that have arrived. Its quantization is not known. */
  readonly receivedBytes?: number;
  readonly commit?: string;
  /** In the order of their parts. */
  readonly paths: readonly string[];
}

export async function downloadedModels(cacheFolder: string): Promise<DownloadedModel[]> {
  const cache = new HubCache(cacheFolder);
  const models: DownloadedModel[] = [];
  for (const { repository, commit, refs, files } of await cache.revisions()) {
    const revision = refs.includes('main') ? 'main' : (refs[0] ?? commit);
    for (const { label, files: parts } of modelsAmong(files)) {
      models.push({
        name: hubName({ repository, revision, selector: label }),
        bytes: parts.reduce((sum, { bytes }) => sum + bytes, 0),
        commit,
        paths: parts.map(({ location }) => location),
      });
    }
  }
  for (const { repository, location, bytes } of await cache.incompleteFiles()) {
    models.push({ name: `hf:${repository}`, bytes, receivedBytes: bytes, paths: [location] });
  }
  return models.sort((a, b) => (a.name < b.name ? -1 : 1));
}

/**
 * Removes the models that a name means: all of the repository if it has no selector, of all revisions if it has none.
 * @throws modelNotDownloaded
 */
export async function removeModels(
  name: string,
  cacheFolder: string,
): Promise<{ readonly removed: readonly string[]; readonly freedBytes: number }> {
  const model = parseHubName(name);
  const isRevisionNamed = model.revision !== 'main';
  const cache = new HubCache(cacheFolder);
  const files: CachedFile[] = [];
  const removed = new Set<string>();
  for (const { repository, commit, refs, files: found } of await cache.revisions()) {
    if (repository !== model.repository) continue;
    if (isRevisionNamed && commit !== model.revision && !refs.includes(model.revision)) continue;
    for (const downloaded of modelsAmong(found)) {
      if (model.selector !== undefined && !isSelected(downloaded, model.selector)) continue;
      files.push(...downloaded.files);
      removed.add(hubName({ ...model, selector: downloaded.label }));
    }
  }
  let freedBytes = await cache.remove(model.repository, files);
  if (model.selector === undefined && !isRevisionNamed) {
    const incompleteBytes = await cache.removeIncomplete(model.repository);
    if (incompleteBytes > 0) removed.add(`an incomplete download of ${hubName(model)}`);
    freedBytes += incompleteBytes;
  }
  if (removed.size === 0) throw modelNotDownloaded({ name: hubName(model) });
  return { removed: [...removed], freedBytes };
}
