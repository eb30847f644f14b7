import { kvEventsPackageMissing } from './errors.ts';

/** The parts of two packages that KV events use. */
export interface MsgpackLibrary {
  encode(value: unknown, options: { readonly useBigInt64: true }): Uint8Array;
}

export interface ZmqLibrary {
  readonly Publisher: new (options: SocketOptions) => ZmqPublisherSocket;
  readonly Router: new (options: SocketOptions) => ZmqRouterSocket;
}

interface SocketOptions {
  readonly sendHighWaterMark: number;
  readonly sendTimeout: number;
  readonly linger: number;
}

interface ZmqSocket {
  bind(address: string): Promise<void>;
  /** A native thread frees the address later, and then there is the event `close`. */
  unbind(address: string): Promise<void>;
  readonly events: { on(event: 'close', listener: () => void): unknown };
  connect(address: string): void;
  /** One call at a time. */
  send(frames: (Uint8Array | string)[]): Promise<void>;
  close(): void;
  /** The address of the last `bind` or `connect`, with the port that was chosen. */
  readonly lastEndpoint: string | null;
}

export type ZmqPublisherSocket = ZmqSocket;
export type ZmqRouterSocket = ZmqSocket & AsyncIterable<Uint8Array[]>;

export interface KvEventLibraries {
  readonly zmq: ZmqLibrary;
  readonly msgpack: MsgpackLibrary;
}

/** The tested versions, which the message about a missing package names. */
const packages = 'zeromq@6.8.0 @msgpack/msgpack@3.1.3';

/** @throws KvasirError `kvEventsPackageMissing`. */
export async function loadKvEventLibraries(
  load: (name: 'zeromq' | '@msgpack/msgpack') => Promise<unknown> = (name) =>
    name === 'zeromq' ? import('zeromq') : import('@msgpack/msgpack'),
): Promise<KvEventLibraries> {
  const loaded = async <T>(name: 'zeromq' | '@msgpack/msgpack'): Promise<T> => {
    try {
      return (await load(name)) as T;
    } catch (error) {
      const isMissing = (error as { code?: unknown }).code === 'ERR_MODULE_NOT_FOUND';
      const reason = isMissing
        ? `${name} is not installed`
        : `${name} cannot be loaded (${(error as Error).message.split('\n')[0]})`;
      throw kvEventsPackageMissing({ reason, packages }, error);
    }
  };
  return { zmq: await loaded<ZmqLibrary>('zeromq'), msgpack: await loaded<MsgpackLibrary>('@msgpack/msgpack') };
}
