import { assert } from '../../../base/assert.ts';
import type { RedisCommand, RedisLibrary } from './redis-client.ts';

/** A command to send once. Its bytes are reused after `release`, so it is called after the server's answer. */
export interface StoreCommand {
  readonly command: RedisCommand;
  release(): void;
}

/** Room for the name of a key and the rest of the command. */
const overheadBytes = 512;

/**
 * Makes `SET key value EX seconds NX` commands for values of one size. The value is written where the socket reads it; the
 * client's own commands copy it once more, into new memory each time.
 */
export class StoreCommands {
  readonly #library: RedisLibrary;
  readonly #valueBytes: number;
  readonly #freeMax: number;
  readonly #seconds: string;
  readonly #suffix: Buffer;
  readonly #free: Buffer[] = [];

  /** `freeMax`: how many buffers without a command are kept. */
  constructor(library: RedisLibrary, options: { valueBytes: number; ttlSeconds: number; freeMax: number }) {
    this.#library = library;
    this.#valueBytes = options.valueBytes;
    this.#freeMax = options.freeMax;
    this.#seconds = `${options.ttlSeconds}`;
    this.#suffix = Buffer.from(`\r\n${['EX', this.#seconds, 'NX'].map(bulk).join('')}`);
  }

  /** `write` fills the value. If it rejects, it no longer writes. */
  async create(key: string, write: (value: Uint8Array) => Promise<void>): Promise<StoreCommand> {
    const buffer = this.#free.pop() ?? Buffer.allocUnsafeSlow(this.#valueBytes + overheadBytes);
    const start = buffer.write(`*6\r\n${bulk('SET')}${bulk(key)}$${this.#valueBytes}\r\n`);
    const end = start + this.#valueBytes;
    assert(end + this.#suffix.length <= buffer.length, `a key of ${key.length} characters`);
    const release = (): void => {
      if (this.#free.length < this.#freeMax) this.#free.push(buffer);
    };
    try {
      await write(buffer.subarray(start, end));
    } catch (error) {
      release();
      throw error;
    }
    this.#suffix.copy(buffer, end);
    const bytes = buffer.subarray(0, end + this.#suffix.length);
    // The arguments are for the client's choice of a cluster's server only.
    const command = new this.#library.Command('set', [key, '', 'EX', this.#seconds, 'NX'], { replyEncoding: 'utf8' });
    command.toWritable = () => bytes;
    return { command, release };
  }
}

/** A string as Redis's protocol has it. */
const bulk = (text: string): string => `$${Buffer.byteLength(text)}\r\n${text}\r\n`;
