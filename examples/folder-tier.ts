/**
 * A tier below host memory in TypeScript: a folder with one file per block. A real tier would put a server in place of the folder. The
 * engine adds deadlines, circuit breakers, write-behind and measurements. Compile it, then name the module and the class:
 *
 *   kvasir serve --kv-transfer-config '{"kv_connector":"OffloadingConnector","kv_role":"kv_both","kv_connector_extra_config":{
 *     "spec_name":"TieringOffloadingSpec","cpu_bytes_to_use":8589934592,"secondary_tiers":[
 *     {"type":"FolderTier","module_path":"kvasir/examples/folder-tier","folder":"/var/cache/kvasir"}]}}'
 */
import { createHash, randomUUID } from 'node:crypto';
import { access, link, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import {
  BlockCodec,
  type BlockKey,
  headerBytes,
  type JsonObject,
  type LookupAnswers,
  lookUpEach,
  type MissReason,
  OpenCalls,
  type OwnTierContext,
  type StoreAnswer,
  type Tier,
  type TierContext,
  tierClosed,
} from 'kvasir/connector';

export class FolderTier implements Tier {
  readonly name: string;
  readonly authenticatesBlocks = true;
  readonly encryptsBlocks = true;
  readonly #folder: string;
  readonly #codec: BlockCodec;
  readonly #calls: OpenCalls;
  readonly #misses: Record<string, number> = {};

  private constructor(folder: string, { name, identity, crc32, macKeys, encrypts }: OwnTierContext) {
    this.name = name;
    this.#folder = folder;
    this.#codec = new BlockCodec(identity, crc32, macKeys, encrypts);
    this.#calls = new OpenCalls(() => tierClosed({ tier: name }));
  }

  /** Checks the settings. Each model, layout and rank has its own folder, because their blocks differ. */
  static async open({ folder }: JsonObject, context: OwnTierContext): Promise<FolderTier> {
    if (typeof folder !== 'string') throw new Error('the setting `folder` must be a directory');
    const digest = createHash('sha256').update(JSON.stringify(context.identity)).digest('hex');
    const own = join(folder, digest.slice(0, 16));
    for (const path of [folder, own]) await makeFolder(path);
    return new FolderTier(own, context);
  }

  /** A key whose call fails is unknown, and the other keys get an answer. */
  has(keys: readonly BlockKey[], signal: AbortSignal): Promise<LookupAnswers> {
    return this.#calls.run(() => lookUpEach(keys, signal, (key) => this.#exists(key), { limit: 32 }));
  }

  /** Verifies the block. A damaged block is removed, so that it can be stored again. */
  load(key: BlockKey, into: Uint8Array, signal: AbortSignal): Promise<MissReason | undefined> {
    return this.#calls.run(async () => {
      const stored = await readIfThere(this.fileOf(key), signal);
      signal.throwIfAborted();
      const reason = stored === undefined ? 'missing' : this.#decode(key, stored, into);
      if (reason === undefined) return undefined;
      this.#misses[reason] = (this.#misses[reason] ?? 0) + 1;
      if (reason !== 'missing') await rm(this.fileOf(key), { force: true });
      return reason;
    });
  }

  /** Readers find the complete file or none. */
  store(key: BlockKey, bytes: Uint8Array, signal: AbortSignal, context?: TierContext): Promise<StoreAnswer> {
    return this.#calls.run(async () => {
      signal.throwIfAborted();
      if (await this.#exists(key)) return 'alreadyStored';
      const temporary = join(this.#folder, `${randomUUID()}.tmp`);
      try {
        const stored = new Uint8Array(headerBytes + bytes.length);
        this.#codec.encodeInto(key, bytes, stored, context);
        await writeFile(temporary, stored, { signal });
        await link(temporary, this.fileOf(key));
        return 'stored';
      } catch (error) {
        signal.throwIfAborted();
        if (codeOf(error) === 'EEXIST') return 'alreadyStored';
        if (codeOf(error) === 'ENOSPC') return 'full';
        throw error;
      } finally {
        await rm(temporary, { force: true });
      }
    });
  }

  delete(key: BlockKey): Promise<void> {
    return this.#calls.run(() => rm(this.fileOf(key), { force: true }));
  }

  /** This folder grows without limit; a tier that evicts returns the evicted keys. */
  takeEvicted(): readonly BlockKey[] {
    return [];
  }

  /** Loads without a block, by reason. */
  counters(): Readonly<Record<string, number>> {
    return this.#misses;
  }

  close(): Promise<void> {
    return this.#calls.close();
  }

  fileOf(key: BlockKey): string {
    return join(this.#folder, key);
  }

  #decode(key: BlockKey, stored: Uint8Array, into: Uint8Array): MissReason | undefined {
    const header = new Uint8Array(headerBytes);
    header.set(stored.subarray(0, headerBytes));
    into.set(stored.subarray(headerBytes, headerBytes + into.length));
    return this.#codec.verify(key, header, into, stored.length);
  }

  async #exists(key: BlockKey): Promise<boolean> {
    try {
      await access(this.fileOf(key));
      return true;
    } catch (error) {
      if (codeOf(error) === 'ENOENT') return false;
      throw error;
    }
  }
}

/** Not with `recursive`: below /proc, that never ends in some versions of Node. */
async function makeFolder(path: string): Promise<void> {
  try {
    await mkdir(path);
  } catch (error) {
    if (codeOf(error) !== 'EEXIST') throw error;
  }
}

async function readIfThere(path: string, signal: AbortSignal): Promise<Uint8Array | undefined> {
  try {
    return await readFile(path, { signal });
  } catch (error) {
    signal.throwIfAborted();
    if (codeOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}

const codeOf = (error: unknown): unknown => (error as NodeJS.ErrnoException).code;
