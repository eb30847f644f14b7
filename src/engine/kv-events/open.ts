import type { PublisherSettings } from './config.ts';
import { loadKvEventLibraries, type MsgpackLibrary } from './libraries.ts';
import { ZmqPublisher } from './zmq-publisher.ts';

export interface OpenedPublisher {
  readonly publisher: ZmqPublisher;
  readonly msgpack: MsgpackLibrary;
  readonly settings: PublisherSettings;
}

/**
 * Loads the packages and opens the sockets, before the weights are read.
 * @throws KvasirError `kvEventsPackageMissing`, `kvEventsAddressUnusable`.
 */
export async function openKvEventPublisher(
  settings: PublisherSettings,
  warn: (message: string) => void,
): Promise<OpenedPublisher> {
  const { zmq, msgpack } = await loadKvEventLibraries();
  return { publisher: await ZmqPublisher.open(zmq, settings, warn), msgpack, settings };
}
