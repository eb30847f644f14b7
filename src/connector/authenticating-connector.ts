import type {
  KvConnector,
  SchedulerConnector,
  SchedulerConnectorContext,
  WorkerConnector,
  WorkerConnectorContext,
} from './connector.ts';
import { connectorIgnoresEncryption, connectorIgnoresKeys } from './errors.ts';
import { type KeyFile, readKeyFile } from './key-file.ts';

/**
 * A connector whose blocks have a MAC outside of the process, or are encrypted. Each process reads the key file, so a key is in no message
 * between processes. A connector that ignores keys is refused: its blocks would be loaded without a check, or readable by others.
 */
export class AuthenticatingConnector implements KvConnector {
  readonly authenticatesBlocks = true;
  readonly encryptsBlocks: boolean;
  readonly #inner: KvConnector;
  readonly #file: KeyFile;

  /** @throws KvasirError `keyFileInvalid`, `connectorIgnoresKeys`, `connectorIgnoresEncryption` */
  constructor(
    inner: KvConnector,
    { name, keyFile, encrypts }: { readonly name: string; readonly keyFile: string; readonly encrypts: boolean },
  ) {
    if (inner.authenticatesBlocks !== true) throw connectorIgnoresKeys({ name });
    if (encrypts && inner.encryptsBlocks !== true) throw connectorIgnoresEncryption({ name });
    this.encryptsBlocks = encrypts;
    this.#inner = inner;
    this.#file = readKeyFile(keyFile);
  }

  get stores(): readonly string[] {
    return this.#inner.stores ?? [];
  }

  async checkSettings(): Promise<void> {
    await this.#inner.checkSettings?.();
  }

  openScheduler(context: SchedulerConnectorContext): Promise<SchedulerConnector> {
    if (this.#file.warning !== undefined) context.event?.(this.#file.warning);
    return this.#inner.openScheduler(context);
  }

  openWorker(context: WorkerConnectorContext): Promise<WorkerConnector> {
    return this.#inner.openWorker({ ...context, macKeys: this.#file.keys, encrypts: this.encryptsBlocks });
  }
}
