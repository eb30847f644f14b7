import { closeSync } from 'node:fs';
import { constants } from 'node:os';
import koffi, { type LibraryHandle } from 'koffi';
import { configureKoffi } from './koffi-config.ts';

/** Linux's numbers, on all of its architectures for which there are native libraries. */
const AF_UNIX = 1;
const SOCK_DGRAM = 2;
const SOCK_CLOEXEC = 0o2000000;
const MSG_DONTWAIT = 0x40;
const MSG_NOSIGNAL = 0x4000;
const PATH_BYTES_MAX = 108;

/** `full`: the receiver has not read earlier datagrams; the same call can succeed later. Otherwise the system's error. */
export type DatagramOutcome = 'sent' | 'full' | { readonly error: string };

/**
 * Sends one datagram to a Unix socket, which Node cannot. Linux only. Never blocks: a full receiver is reported.
 * @param path a path, or `@name` in the abstract namespace
 */
export function sendDatagram(path: string, text: string): DatagramOutcome {
  const address = addressOf(path);
  if (address === undefined) return { error: 'ENAMETOOLONG' };
  const { socket, sendto } = functions();
  const file = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0) as number;
  if (file < 0) return { error: errorName() };
  try {
    const bytes = Buffer.from(text);
    const flags = MSG_NOSIGNAL | MSG_DONTWAIT;
    if (Number(sendto(file, bytes, bytes.length, flags, address, address.length)) >= 0) return 'sent';
    const error = errorName();
    return error === 'EAGAIN' || error === 'ENOBUFS' ? 'full' : { error };
  } finally {
    closeSync(file);
  }
}

/** `sockaddr_un`. The name of an abstract socket begins with a zero byte and ends with the address. */
export function addressOf(path: string): Buffer | undefined {
  const name = Buffer.from(path.startsWith('@') ? `\0${path.slice(1)}` : `${path}\0`);
  if (name.length > PATH_BYTES_MAX) return undefined;
  const family = Buffer.from(new Uint16Array([AF_UNIX]).buffer);
  return Buffer.concat([family, name]);
}

const errorName = (): string => {
  const number = koffi.errno();
  return Object.entries(constants.errno).find(([, value]) => value === number)?.[0] ?? `errno ${number}`;
};

type NativeFunction = ReturnType<LibraryHandle['func']>;
let loaded: { readonly socket: NativeFunction; readonly sendto: NativeFunction } | undefined;

function functions() {
  if (loaded !== undefined) return loaded;
  configureKoffi();
  const libc = koffi.load(null);
  loaded = {
    socket: libc.func('socket', 'int', ['int', 'int', 'int']),
    sendto: libc.func('sendto', 'int64', ['int', 'uint8_t *', 'size_t', 'int', 'uint8_t *', 'uint']),
  };
  return loaded;
}
