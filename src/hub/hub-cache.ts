/**
 * The folder of downloaded models, in the layout of Hugging Face's programs, so that each finds what another downloaded:
 *
 *   models--owner--name/refs/main                  the commit that a branch or tag meant when it was last asked for
 *   models--owner--name/snapshots/COMMIT/PATH      a link to a blob
 *   models--owner--name/blobs/HASH                 the content of a file, named by its hash
 */
import type { Dirent } from 'node:fs';
import { lstat, readdir, readFile, readlink, realpath, rename, rm, rmdir, stat, symlink } from 'node:fs/promises';
import { basename, dirname, join, relative, sep } from 'node:path';
import { assert } from '../base/assert.ts';
import { writeDurably } from '../base/durable-file.ts';
import { makeFolders } from '../base/make-folders.ts';
import { hubFolderUnusable } from './errors.ts';
import type { HubModel } from './model-name.ts';
import { isBlobName, isCommit, isSafePath } from './safe-names.ts';

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

const thisSystem = {
  platform: process.platform as NodeJS.Platform,
  symlink: symlink as (target: string, path: string) => Promise<void>,
};

export class HubCache {
  readonly folder: string;

  readonly #system: typeof thisSystem;

  constructor(folder: string, system = thisSystem) {
    this.folder = folder;
    this.#system = system;
  }

  /** The path of a blob, whose folder exists afterwards. @throws hubFolderUnusable */
  async blobPath(repository: string, blob: string): Promise<string> {
    assert(isBlobName(blob), 'the name of a blob is a hash');
    return this.#usable(async () => {
      const folder = join(this.#repository(repository), 'blobs');
      await makeFolders(folder);
      await this.#checkBelow(repository, folder);
      return join(folder, blob);
    });
  }

  /** Where the bytes of a blob are while it is downloaded. The next attempt continues behind them. */
  static incompletePath(blobPath: string): string {
    return `${blobPath}${incompleteEnding}`;
  }

  /** The path of a file of a commit, which need not exist. */
  location(repository: string, commit: string, path: string): string {
    assert(isCommit(commit) && isSafePath(path), 'names from the network have been checked');
    return join(this.#repository(repository), 'snapshots', commit, ...path.split('/'));
  }

  /** Makes a blob visible as a file of a commit. @throws hubFolderUnusable */
  async place(repository: string, location: string, blobPath: string): Promise<void> {
    await this.#usable(async () => {
      await makeFolders(dirname(location));
      await this.#checkBelow(repository, dirname(location));
      await this.#removeLink(location);
      try {
        await this.#system.symlink(relative(dirname(location), blobPath), location);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === 'EEXIST') return;
        // Windows lets only some users make links. Then the file itself stands there.
        if (this.#system.platform !== 'win32') throw error;
        await rename(blobPath, location);
      }
    });
  }

  /** Notes which commit a branch or tag means now. @throws hubFolderUnusable */
  async setRef({ repository, revision }: HubModel, commit: string): Promise<void> {
    if (isCommit(revision)) return;
    await this.#usable(async () => {
      const path = join(this.#repository(repository), 'refs', ...revision.split('/'));
      await makeFolders(dirname(path));
      await writeDurably(path, Buffer.from(commit));
    });
  }

  /** The downloaded files of a revision, as it was when it was last asked for. */
  async filesOf({ repository, revision }: HubModel): Promise<readonly CachedFile[]> {
    const folder = this.#repository(repository);
    const commit = isCommit(revision)
      ? revision
      : (await readFile(join(folder, 'refs', ...revision.split('/')), 'utf8').catch(() => '')).trim();
    return isCommit(commit) ? filesBelow(join(folder, 'snapshots', commit)) : [];
  }

  async revisions(): Promise<CachedRevision[]> {
    const found: CachedRevision[] = [];
    for (const name of await namesIn(this.folder)) {
      const match = repositoryFolder.exec(name);
      if (match === null) continue;
      const folder = join(this.folder, name);
      const refs = await refsIn(join(folder, 'refs'));
      for (const commit of (await namesIn(join(folder, 'snapshots'))).filter(isCommit)) {
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
        // A link that another program made, to a file outside the cache.
        if (blob !== undefined && !isBlobOf(folder, blob)) continue;
        if (blob !== undefined && (await this.#isUsed(folder, blob))) continue;
        if (blob !== undefined) await rm(blob, { force: true });
        freed += bytes;
      }
      if ((await filesBelow(join(folder, 'snapshots'))).length === 0) await removeLayout(folder);
      return freed;
    });
  }

  /** Links must not lead a download out of the folder of its repository, which may be a link itself. */
  async #checkBelow(repository: string, folder: string): Promise<void> {
    const [root, found] = await Promise.all([realpath(this.#repository(repository)), realpath(folder)]);
    if (!found.startsWith(`${root}${sep}`)) throw new Error(`${folder} is a link to ${found}`);
  }

  /** Removes a link whose blob was removed. Where links need permissions, the file itself may stand there. */
  async #removeLink(location: string): Promise<void> {
    const found = await lstat(location).catch(() => undefined);
    if (found === undefined) return;
    if (!found.isSymbolicLink() && this.#system.platform !== 'win32')
      throw new Error(`${location} is not a link of this cache`);
    await rm(location, { force: true });
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

/** Whether a path is that of a blob of a repository, complete or not. */
const isBlobOf = (repositoryFolder: string, path: string): boolean =>
  dirname(path) === join(repositoryFolder, 'blobs') && isBlobName(basename(path).replace(incompleteEnding, ''));

/** Removes the folders of a repository that has no files any more, but nothing else that is there. */
async function removeLayout(folder: string): Promise<void> {
  for (const part of ['refs', 'snapshots', 'blobs', '.no_exist']) {
    await rm(join(folder, part), { recursive: true, force: true });
  }
  await rmdir(folder).catch(() => undefined);
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
