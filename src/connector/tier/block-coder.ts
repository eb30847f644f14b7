import { systemClock } from '../../base/clock.ts';
import { addressOfBytes } from '../../base/native-memory.ts';
import { entryPoint } from '../../base/package-files.ts';
import type { BlockKey } from '../block-key.ts';
import type { Crc32, KvIdentity, MacKeys } from '../connector.ts';
import { tierFailed } from '../errors.ts';
import type { MissReason } from '../reasons.ts';
import { systemTimers } from '../system-timers.ts';
import { BlockCodec, isEncrypted } from './block-header.ts';
import type { CodecCall } from './codec-thread-main.ts';
import { IoPool } from './disk/io-pool.ts';
import type { TierContext } from './tier.ts';

export interface BlockCoderOptions {
  readonly identity: KvIdentity;
  readonly crc32?: Crc32 | undefined;
  readonly macKeys?: MacKeys | undefined;
  readonly encrypts?: boolean | undefined;
  /** Of the tier, for errors. */
  readonly name: string;
}

/** A thread is never in a call for long, so no call is given up. */
const never = new AbortController().signal;
/** They start at first use. A thread encrypts faster than most servers take blocks. */
const threadsMax = 2;

/**
 * The codec of a tier whose client runs on the engine's thread. Checksums and MACs take less time than a copy of the block, and are
 * computed there. Encryption takes several times as long, so it has threads of its own.
 */
export class BlockCoder {
  readonly codec: BlockCodec;
  readonly #threads: IoPool<CodecCall, MissReason | undefined> | undefined;

  constructor({ identity, crc32, macKeys, encrypts = false, name }: BlockCoderOptions) {
    this.codec = new BlockCodec(identity, crc32, macKeys, encrypts);
    if (macKeys === undefined) return;
    this.#threads = new IoPool({
      entry: entryPoint('src/connector/tier/codec-thread-main'),
      isBackground: false,
      setup: { identity, crc32Library: crc32?.library, macKeys, encrypts },
      threadsMax,
      clock: systemClock,
      timers: systemTimers,
      tooManyStuck: (count) =>
        tierFailed({ tier: name, action: 'encrypt or decrypt a block', reason: `${count} threads do not answer` }),
    });
  }

  get identity(): KvIdentity {
    return this.codec.identity;
  }

  /**
   * As `BlockCodec.encodeInto`. Without encryption, all is done before it returns. Otherwise it settles when the thread has ended, which
   * takes some milliseconds, also if the caller has given up: until then the memory must not change.
   */
  async encodeInto(key: BlockKey, payload: Uint8Array, stored: Uint8Array, context: TierContext = {}): Promise<void> {
    const { payloadCrc, saltTag } = context;
    if (!this.codec.encrypts) {
      this.codec.encodeInto(key, payload, stored, { payloadCrc, saltTag });
      return;
    }
    const ranges = { payload: addressOfBytes(payload), stored: addressOfBytes(stored) };
    await this.#threads!.run({ kind: 'encodeInto', key, ...ranges, payloadCrc, saltTag }, never, [payload, stored]);
  }

  /** As `BlockCodec.verify`. If the block is not encrypted, all is done before it returns. Otherwise as `encodeInto`. */
  async verify(
    key: BlockKey,
    header: Uint8Array,
    payload: Uint8Array,
    storedBytes: number,
  ): Promise<MissReason | undefined> {
    if (!isEncrypted(header)) return this.codec.verify(key, header, payload, storedBytes);
    const reason = this.codec.verifyHeader(key, header, storedBytes);
    if (reason !== undefined) return reason;
    const call = {
      kind: 'verify',
      key,
      header: header.slice(),
      payload: addressOfBytes(payload),
      storedBytes,
    } as const;
    return this.#threads!.run(call, never, payload);
  }

  async close(): Promise<void> {
    await this.#threads?.close();
  }
}
