import { closeSync } from 'node:fs';
import koffi from 'koffi';
import { configureKoffi } from '../../src/base/koffi-config.ts';
import { addressOf } from '../../src/base/unix-datagram.ts';

const AF_UNIX = 1;
const SOCK_DGRAM = 2;
const MSG_DONTWAIT = 0x40;

/** A Unix socket that receives datagrams, as a service manager's. Linux only. */
export class DatagramReceiver {
  readonly #file: number;
  readonly #receive: (file: number, bytes: Buffer, length: number, flags: number) => number;

  /** @param path a path, or `@name` in the abstract namespace */
  constructor(path: string) {
    configureKoffi();
    const libc = koffi.load(null);
    const socket = libc.func('socket', 'int', ['int', 'int', 'int']);
    const bind = libc.func('bind', 'int', ['int', 'uint8_t *', 'uint']);
    this.#receive = libc.func('recv', 'int64', ['int', 'uint8_t *', 'size_t', 'int']);
    this.#file = socket(AF_UNIX, SOCK_DGRAM, 0);
    const address = addressOf(path)!;
    if (bind(this.#file, address, address.length) !== 0) throw new Error(`cannot bind ${path}: ${koffi.errno()}`);
  }

  /** The datagrams that have arrived since the last call. */
  read(): string[] {
    const texts: string[] = [];
    const bytes = Buffer.alloc(65_536);
    for (;;) {
      const length = Number(this.#receive(this.#file, bytes, bytes.length, MSG_DONTWAIT));
      if (length < 0) return texts;
      texts.push(bytes.toString('utf8', 0, length));
    }
  }

  close(): void {
    closeSync(this.#file);
  }
}
