/**
 * The folder of downloaded models, in the layout of Hugging Face's programs, so that each finds what another downloaded:
 *
 *   models--owner--name/refs/main                  the commit that a branch or tag meant when it was last asked for
 *   models--owner--name/snapshots/COMMIT/PATH      a link to a blob
 *   models--owner--name/blobs/HASH                 the content of a file, named by its hash
 */
import type { Dirent } from 'node:fs';
import { readdir, readFile, readlink, rename, rm, rmdir, stat, symlink } from 'node:fs/promises';
import { dirname, join, relative, sep } from 'node:path';
import { writeDurably } from '../base/durable-file.ts';
import { makeFolders } from '../base/make-folders.ts';
import { hubFolderUnusable } from './errors.ts';
import type { HubModel } from './model-name.ts';

/** A file of a downloaded model. */
export interface CachedFile {
  /** In its repository. */
  readonly path: string;
  /** On this machine. */
  readonly location: string;
  readonly bytes: number;
}

export interface CachedRevision {
  readonly repository: string;
  readonly commit: string;
  /** Branches and tags that meant the commit when they were last asked for. */
  readonly refs: readonly string[];
  readonly files: readonly CachedFile[];
}

const repositoryFolder = /^models--(.+?)--(.+)$/;
/** Of the name of a blob that is not complete. */
const incompleteEnding = '.kvasir-incomplete';
const commitPattern = /^[0-9a-f]{40}$/;

export class HubCache {
  readonly folder: string;

  constructor(folder: string) {
    this.folder = folder;
  }

  /** The path of a blob, whose folder exists afterwards. @throws hubFolderUnusable */
  async blobPath(repository: string, blob: string): Promise<string> {
    return this.#usable(async () => {
      const folder = join(this.#repository(repository), 'blobs');
      await makeFolders(folder);
      return join(folder, blob);
    });
  }

  /** Where the bytes of a blob are while it is downloaded. The next attempt continues behind them. */
  static incompletePath(blobPath: string): string {
    return `${blobPath}${incompleteEnding}`;
  }

  /** The path of a file of a commit, which need not exist. */
  location(repository: string, commit: string, path: string): string {
    return join(this.#repository(repository), 'snapshots', commit, ...path.split('/'));
  }

  /** Makes a blob visible as a file of a commit. @throws hubFolderUnusable */
  async place(location: string, blobPath: string): Promise<void> {
    await this.#usable(async () => {
      await makeFolders(dirname(location));
      // A link whose blob was removed.
      await rm(location, { force: true });
      try {
        await symlink(relative(dirname(location), blobPath), location);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === 'EEXIST') return;
        // Windows lets only some users make links. Then the file itself stands there.
        if (process.platform !== 'win32') throw error;
        await rename(blobPath, location);
      }
    });
  }

  /** Notes which commit a branch or tag means now. @throws hubFolderUnusable */
  async setRef({ repository, revision }: HubModel, commit: string): Promise<void> {
    if (commitPattern.test(revision)) return;
    await this.#usable(async () => {
      const path = join(this.#repository(repository), 'refs', ...revision.split('/'));
      await makeFolders(dirname(path));
      await writeDurably(path, Buffer.from(commit));
    });
  }

  /** The downloaded files of a revision, as it was when it was last asked for. */
  async filesOf({ repository, revision }: HubModel): Promise<readonly CachedFile[]> {
    const folder = this.#repository(repository);
    const commit = commitPattern.test(revision)
      ? revision
      : (await readFile(join(folder, 'refs', ...revision.split('/')), 'utf8').catch(() => '')).trim();
    return commitPattern.test(commit) ? filesBelow(join(folder, 'snapshots', commit)) : [];
  }

  async revisions(): Promise<CachedRevision[]> {
    const found: CachedRevision[] = [];
    for (const name of await namesIn(this.folder)) {
      const match = repositoryFolder.exec(name);
      if (match === null) continue;
      const folder = join(this.folder, name);
      const refs = await refsIn(join(folder, 'refs'));
      for (const commit of (await namesIn(join(folder, 'snapshots'))).filter((text) => commitPattern.test(text))) {
        const files = await filesBelow(join(folder, 'snapshots', commit));
        const named = [...refs].filter(([, meant]) => meant === commit).map(([ref]) => ref);
        found.push({ repository: `${match[1]}/${match[2]}`, commit, refs: named, files });
      }
    }
    return found;
  }

  /** What downloads that stopped have received. */
  async incompleteFiles(): Promise<(CachedFile & { readonly repository: string })[]> {
    const found: (CachedFile & { readonly repository: string })[] = [];
    for (const name of await namesIn(this.folder)) {
      const match = repositoryFolder.exec(name);
      if (match === null) continue;
      const repository = `${match[1]}/${match[2]}`;
      const files = await filesBelow(join(this.folder, name, 'blobs'));
      for (const file of files) if (file.path.endsWith(incompleteEnding)) found.push({ ...file, repository });
    }
    return found;
  }

  /** Removes what downloads that stopped have received, and returns its bytes. @throws hubFolderUnusable */
  async removeIncomplete(repository: string): Promise<number> {
    const files = (await this.incompleteFiles()).filter((file) => file.repository === repository);
    return files.length === 0 ? 0 : this.remove(repository, files);
  }

  /** Removes files of a repository, and their blobs if no other file needs them. Returns the bytes that are free now. */
  async remove(repository: string, files: readonly CachedFile[]): Promise<number> {
    return this.#usable(async () => {
      const folder = this.#repository(repository);
      let freed = 0;
      for (const { location, bytes } of files) {
        const target = await readlink(location).catch(() => undefined);
        await rm(location, { force: true });
        await removeEmpty(dirname(location), folder);
        const blob = target === undefined ? undefined : join(dirname(location), target);
        if (blob !== undefined && (await this.#isUsed(folder, blob))) continue;
        if (blob !== undefined) await rm(blob, { force: true });
        freed += bytes;
      }
      if ((await filesBelow(join(folder, 'snapshots'))).length === 0)
        await rm(folder, { recursive: true, force: true });
      return freed;
    });
  }

  async #isUsed(folder: string, blob: string): Promise<boolean> {
    for (const { location } of await filesBelow(join(folder, 'snapshots'))) {
      const target = await readlink(location).catch(() => undefined);
      if (target !== undefined && join(dirname(location), target) === blob) return true;
    }
    return false;
  }

  #repository(repository: string): string {
    return join(this.folder, `models--${repository.replace('/', '--')}`);
  }

  async #usable<T>(use: () => Promise<T>): Promise<T> {
    try {
      return await use();
    } catch (error) {
      throw hubFolderUnusable({ folder: this.folder, reason: (error as Error).message }, error);
    }
  }
}

const namesIn = async (folder: string): Promise<string[]> =>
  (await readdir(folder).catch(() => [])).sort((a, b) => (a < b ? -1 : 1));

/** Files whose content is there. */
async function filesBelow(folder: string): Promise<CachedFile[]> {
  const entries: Dirent[] = await readdir(folder, { recursive: true, withFileTypes: true }).catch(() => []);
  const files: CachedFile[] = [];
  for (const entry of entries) {
    if (entry.isDirectory()) continue;
    const location = join(entry.parentPath, entry.name);
    const status = await stat(location).catch(() => undefined);
    if (status?.isFile() !== true) continue;
    files.push({ path: relative(folder, location).split(sep).join('/'), location, bytes: status.size });
  }
  return files.sort((a, b) => (a.path < b.path ? -1 : 1));
}

async function refsIn(folder: string): Promise<Map<string, string>> {
  const refs = new Map<string, string>();
  for (const { path, location } of await filesBelow(folder)) refs.set(path, (await readFile(location, 'utf8')).trim());
  return refs;
}

/** Removes a folder if it is empty, and then its parent, below `root`. */
async function removeEmpty(folder: string, root: string): Promise<void> {
  if (folder === root) return;
  try {
    await rmdir(folder);
  } catch {
    return;
  }
  await removeEmpty(dirname(folder), root);
}
