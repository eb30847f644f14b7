import type { Dir } from 'node:fs';
import { opendir, stat, statfs } from 'node:fs/promises';
import { join } from 'node:path';

/** More entries than a folder of models has. A walk through so many takes seconds. */
export const entriesDefaultMax = 100_000;

/** `f_type` of file systems without files of users: proc, sysfs, both cgroups, devpts, debugfs, tracefs, securityfs, bpf, configfs. */
const pseudo = new Set(
  [0x9fa0, 0x62656572, 0x27e0eb, 0x63677270, 0x1cd1].concat([
    0x64626720, 0x74726163, 0x73636673, 0xcafe4a11, 0x62656570,
  ]),
);

interface FoundFiles {
  /** Paths below the folder, with `/`. */
  readonly paths: readonly string[];
  /** The folder has more entries than the limit: `paths` has those of the first. */
  readonly isCut: boolean;
}

/**
 * The GGUF files in a folder and below. Links to folders are followed, and each real folder is read once: without that, a link to a folder
 * above it leads to endless paths. Folders that cannot be read are left out. @throws the system's error for the folder itself
 */
export async function ggufFilesBelow(
  folder: string,
  {
    signal,
    entriesMax = entriesDefaultMax,
  }: { readonly signal?: AbortSignal | undefined; readonly entriesMax?: number } = {},
): Promise<FoundFiles> {
  const seen = new Folders();
  const paths: string[] = [];
  const folders = [''];
  /** After all folders, so that the files of a folder have its own name. */
  const links: string[] = [];
  let entries = 0;
  for (let path = folders.shift(); path !== undefined; path = folders.shift() ?? links.shift()) {
    const isRoot = path === '';
    const opened = await seen.open(join(folder, path)).catch((error: unknown) => {
      if (isRoot) throw error;
    });
    if (opened === undefined) continue;
    const [inThis, linksInThis]: [string[], string[]] = [[], []];
    try {
      for await (const entry of opened) {
        signal?.throwIfAborted();
        if (++entries > entriesMax) return { paths, isCut: true };
        const name = isRoot ? entry.name : `${path}/${entry.name}`;
        if (entry.isDirectory()) inThis.push(name);
        else if (/\.gguf$/i.test(entry.name)) paths.push(name);
        if (entry.isSymbolicLink()) linksInThis.push(name);
      }
    } catch (error) {
      if (isRoot || signal?.aborted === true) throw error;
    }
    folders.push(...inThis.sort());
    links.push(...linksInThis.sort());
  }
  return { paths, isCut: false };
}

/** The folders of one walk. */
class Folders {
  readonly #seen = new Set<string>();
  readonly #isPseudo = new Map<bigint, boolean>();

  /** Undefined: it was opened before, or is in a pseudo file system. */
  async open(path: string): Promise<Dir | undefined> {
    const { dev, ino } = await stat(path, { bigint: true });
    const id = `${dev}:${ino}`;
    if (this.#seen.has(id)) return undefined;
    this.#seen.add(id);
    if (!this.#isPseudo.has(dev)) this.#isPseudo.set(dev, pseudo.has((await statfs(path)).type));
    return this.#isPseudo.get(dev) === true ? undefined : opendir(path, { bufferSize: 256 });
  }
}
