/**
 * A connector that stores blocks as compressed files in a folder. After any fault, the engine computes the block again, and the text
 * stays right. Run it with
 *
 *   kvasir serve --kv-transfer-config.kv_connector CompressedConnector --kv-transfer-config.kv_role kv_both \
 *     --kv-transfer-config.kv_connector_module_path examples/compressed-kv-connector.js \
 *     --kv-transfer-config.kv_connector_extra_config.folder /var/kv
 */
import { createHash, randomUUID } from 'node:crypto';
import { access, mkdir, readFile, rename, unlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { deflateRaw, inflateRaw } from 'node:zlib';
import { BlockCodec, headerBytes, lookUpEach, TierScheduler, TierWorker } from 'kvasir/connector';

const compress = promisify(deflateRaw);
const decompress = promisify(inflateRaw);

/** Opens both sides of a connector on a tier. They decide which blocks to load and save, and have deadlines and retries. */
export class CompressedConnector {
  #folder;
  #role;

  /** The constructor checks the settings: it runs before the model is loaded. */
  constructor({ kvConnectorExtraConfig: { folder }, kvRole }) {
    if (typeof folder !== 'string') throw new Error('kv_connector_extra_config.folder must be a directory');
    this.#folder = folder;
    this.#role = kvRole;
  }

  async openScheduler(context) {
    const tiers = await Promise.all(context.identities.map((identity) => CompressedTier.open(this.#folder, identity)));
    return new TierScheduler(tiers, context, { role: this.#role, mode: 'async', lookupTimeoutMs: 1000 });
  }

  async openWorker(context) {
    return new TierWorker(await CompressedTier.open(this.#folder, context.identity), context, {
      loadsAtOnce: 4,
      savesAtOnce: 2,
      saveBufferBytes: 64 * 1024 * 1024,
      saveTimeoutMs: 30_000,
    });
  }
}

/** A place for blocks. A missing or corrupt block is a result; a promise rejects if the place itself fails. */
class CompressedTier {
  name = 'compressed';
  #folder;
  #codec;

  constructor(folder, identity) {
    this.#folder = folder;
    this.#codec = new BlockCodec(identity);
  }

  /** Each model, layout and rank has its own folder, because their blocks differ. */
  static async open(root, identity) {
    const name = createHash('sha256').update(JSON.stringify(identity)).digest('hex').slice(0, 16);
    const folder = join(root, name);
    for (const path of [root, folder]) await makeFolder(path);
    return new CompressedTier(folder, identity);
  }

  /** A key whose call fails is unknown, and the other keys get an answer. An abort ends the lookup with the answers so far. */
  has(keys, signal) {
    return lookUpEach(keys, signal, (key) => this.#exists(key), { limit: 32 });
  }

  /** Fills `into` and returns undefined, or returns the reason of the failure. */
  async load(key, into, signal) {
    const reason = await this.#read(key, into, signal);
    // A corrupt block is deleted, so that it can be saved again after its recomputation.
    if (reason !== undefined && reason !== 'missing') await this.delete(key);
    return reason;
  }

  async #read(key, into, signal) {
    let stored;
    try {
      stored = await decompress(await readFile(this.#fileOf(key), { signal }));
    } catch (error) {
      if (error.code === 'ENOENT') return 'missing';
      if (String(error.code).startsWith('Z_')) return 'corrupt';
      throw error;
    }
    signal.throwIfAborted();
    const header = new Uint8Array(headerBytes);
    header.set(stored.subarray(0, headerBytes));
    into.set(stored.subarray(headerBytes, headerBytes + into.length));
    return this.#codec.verify(key, header, into, stored.length);
  }

  /** Readers find the complete file or none. */
  async store(key, bytes, signal) {
    if (await this.#exists(key)) return 'alreadyStored';
    const temporary = join(this.#folder, `${randomUUID()}.tmp`);
    try {
      const stored = await compress(Buffer.concat([this.#codec.encode(key, bytes), bytes]));
      await writeFile(temporary, stored, { signal });
      await rename(temporary, this.#fileOf(key));
      return 'stored';
    } catch (error) {
      await unlink(temporary).catch(() => {});
      if (error.code === 'ENOSPC') return 'full';
      throw error;
    }
  }

  async delete(key) {
    await unlink(this.#fileOf(key)).catch(() => {});
  }

  /** This folder grows without limit; a tier that evicts returns the evicted keys. */
  takeEvicted() {
    return [];
  }

  counters() {
    return {};
  }

  async close() {}

  #fileOf(key) {
    return join(this.#folder, key);
  }

  async #exists(key) {
    try {
      await access(this.#fileOf(key));
      return true;
    } catch (error) {
      if (error.code === 'ENOENT') return false;
      throw error;
    }
  }
}

/** Not with `recursive`: below /proc, that never ends in some versions of Node. */
async function makeFolder(path) {
  try {
    await mkdir(path);
  } catch (error) {
    if (error.code !== 'EEXIST') throw error;
  }
}
