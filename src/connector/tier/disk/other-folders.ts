import { rmdirSync, statSync, unlinkSync } from 'node:fs';
import { join } from 'node:path';
import type { KvIdentity } from '../../connector.ts';
import { modelFolder, rankFolder } from '../identity.ts';
import { isMissing, type StillWanted } from './disk-file.ts';
import { abandonedAfterMs, blockFolder, entriesOf, keyOfFile, readRecord } from './disk-folder.ts';

/**
 * Blocks in a store's directory that this engine cannot use. They have another fingerprint (another model, another
 * version of ggml, another CPU), another layout or another number of ranks. Without a bound, each upgrade would leave
 * blocks on the disk. Blocks are removed from the least recently used folder first, the oldest block first.
 *
 * Any number of processes may do this at once, also while a process uses such a folder. A removed block is a miss, and the
 * next store creates a removed folder again. Only files with names of blocks, and quarantined files, are removed.
 */
export interface OtherBlocks {
  /** Folders of one model, layout and rank. */
  readonly folders: number;
  readonly blocks: number;
  readonly bytes: number;
  /** For people: the models' names. */
  readonly models: readonly string[];
}

/** The blocks after a pass, and how many it removed. */
export type OthersLeft = OtherBlocks & { readonly removed: number };

interface OtherFolder {
  readonly path: string;
  readonly model: string;
  /** When a process last opened or scanned the folder: the date of its record. */
  readonly usedMs: number;
  readonly files: OtherFile[];
}

interface OtherFile {
  readonly path: string;
  readonly bytes: number;
  readonly writtenMs: number;
}

/** Counts the blocks that this engine cannot use. */
export function countOthers(root: string, ours: KvIdentity, stillWanted: StillWanted = () => undefined): OtherBlocks {
  return totalOf(findOthers(root, ours, stillWanted));
}

/** Removes the oldest of these blocks until at most `maxBytes` are left, and folders that were empty for a day. */
export function boundOthers(
  root: string,
  ours: KvIdentity,
  { maxBytes, nowMs }: { readonly maxBytes: number; readonly nowMs: number },
  stillWanted: StillWanted = () => undefined,
): OthersLeft {
  const found = findOthers(root, ours, stillWanted);
  let { bytes } = totalOf(found);
  let removed = 0;
  for (const folder of found.sort((a, b) => a.usedMs - b.usedMs)) {
    folder.files.sort((a, b) => b.writtenMs - a.writtenMs);
    for (let oldest = folder.files.at(-1); oldest !== undefined && bytes > maxBytes; oldest = folder.files.at(-1)) {
      stillWanted();
      removeIfThere(oldest.path, unlinkSync);
      folder.files.pop();
      bytes -= oldest.bytes;
      removed++;
    }
    if (folder.files.length === 0 && nowMs - folder.usedMs > abandonedAfterMs) removeEmpty(folder.path);
  }
  return { ...totalOf(found), removed };
}

/** Bounds these blocks while a tier stores its own blocks: in the background, one pass at a time. */
export class OtherFoldersBound {
  readonly #pass: () => Promise<OthersLeft>;
  #isClosed: boolean = false;
  #running: Promise<void> | undefined;
  #left: OtherBlocks | undefined;
  #removed = 0;

  /** `pass`: `boundOthers`, on a thread that may block. */
  constructor(pass: () => Promise<OthersLeft>) {
    this.#pass = pass;
  }

  /** Starts a pass unless one is running. After a pass that fails, the next call starts another. */
  start(): void {
    if (this.#isClosed) return;
    this.#running ??= this.#pass()
      .then(({ removed, ...left }) => {
        this.#removed += removed;
        this.#left = left;
      })
      .catch(() => undefined)
      .finally(() => {
        this.#running = undefined;
      });
  }

  /** How many blocks all passes removed. */
  get counters(): Readonly<Record<string, number>> {
    return this.#left === undefined ? {} : { othersEvicted: this.#removed };
  }

  /** The blocks after the last pass. */
  get levels(): Readonly<Record<string, number>> {
    if (this.#left === undefined) return {};
    const { folders: otherFolders, blocks: otherBlocks, bytes: otherBytes } = this.#left;
    return { otherFolders, otherBlocks, otherBytes };
  }

  /** The running pass, if there is one. Never rejects. */
  get running(): Promise<void> {
    return this.#running ?? Promise.resolve();
  }

  /** No new pass starts. The caller ends a running pass. */
  close(): void {
    this.#isClosed = true;
  }
}

/** The event at the start; undefined if there are no such blocks. `maxBytes`: undefined if this engine removes none. */
export function describeOthers(root: string, found: OtherBlocks, maxBytes: number | undefined): string | undefined {
  const { folders, blocks, bytes, models } = found;
  if (blocks === 0) return undefined;
  const names = models.length > 4 ? `${models.slice(0, 4).join(', ')}, ...` : models.join(', ');
  const bound =
    maxBytes === undefined ? '' : ` Above ${gibibytes(maxBytes)} (others_max_bytes) the oldest are removed.`;
  return (
    `${root} also has ${blocks} blocks (${gibibytes(bytes)}) in ${folders} folders that this engine cannot use: ` +
    `they belong to other models, settings, machines or numbers of ranks (models: ${names}).${bound}`
  );
}

const gibibytes = (bytes: number): string => `${(bytes / 1024 ** 3).toFixed(2)} GiB`;

function totalOf(found: readonly OtherFolder[]): OtherBlocks {
  const filled = found.filter(({ files }) => files.length > 0);
  const files = filled.flatMap((folder) => folder.files);
  return {
    folders: filled.length,
    blocks: files.length,
    bytes: files.reduce((sum, { bytes }) => sum + bytes, 0),
    models: [...new Set(filled.map(({ model }) => model))],
  };
}

function findOthers(root: string, ours: KvIdentity, stillWanted: StillWanted): OtherFolder[] {
  const found: OtherFolder[] = [];
  // The folders of all ranks of this run.
  const ourRanks = new Set(
    Array.from({ length: ours.worldSize }, (_, rank) => join(root, modelFolder(ours), rankFolder({ ...ours, rank }))),
  );
  for (const model of entriesOf(root)) {
    if (!model.isDirectory() || !modelFolderName.test(model.name)) continue;
    for (const rank of entriesOf(join(root, model.name))) {
      const path = join(root, model.name, rank.name);
      stillWanted();
      if (rank.isDirectory() && rankFolderName.test(rank.name) && !ourRanks.has(path)) found.push(look(path));
    }
  }
  return found;
}

/** Earlier versions named the folders after the model. */
const modelFolderName = /^kv-[0-9a-f]{32}$|_[0-9a-f]{12}$/;
const rankFolderName = /^rank\d+of\d+$/;

function look(path: string): OtherFolder {
  const record = join(path, 'config.json');
  const model = readRecord(record)?.model;
  const used = statIfThere(record);
  const files: OtherFile[] = [];
  for (const { name } of entriesOf(path)) {
    const isQuarantine = name === 'quarantine';
    if (!isQuarantine && !blockFolder.test(name)) continue;
    for (const file of entriesOf(join(path, name))) {
      if (!file.isFile() || (!isQuarantine && keyOfFile(file.name) === undefined)) continue;
      const at = join(path, name, file.name);
      const stats = statIfThere(at);
      if (stats !== undefined) files.push({ path: at, bytes: stats.size, writtenMs: stats.mtimeMs });
    }
  }
  const usedMs = used?.mtimeMs ?? Math.max(0, ...files.map(({ writtenMs }) => writtenMs));
  return { path, model: typeof model === 'string' ? model : 'unknown', usedMs, files };
}

/** Removes empty folders only: another process may have stored a block meanwhile. */
function removeEmpty(path: string): void {
  for (const { name } of entriesOf(path)) {
    if (blockFolder.test(name) || name === 'quarantine') removeIfThere(join(path, name), rmdirSync);
  }
  const left = entriesOf(path);
  if (left.length === 1 && left[0]?.name === 'config.json') removeIfThere(join(path, 'config.json'), unlinkSync);
  removeIfThere(path, rmdirSync);
  removeIfThere(join(path, '..'), rmdirSync);
}

function removeIfThere(path: string, remove: (path: string) => void): void {
  try {
    remove(path);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? '';
    if (!isMissing(error) && !['ENOTEMPTY', 'EEXIST'].includes(code)) throw error;
  }
}

function statIfThere(path: string) {
  try {
    return statSync(path);
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}
