import type {
  KvConnector,
  SchedulerConnector,
  SchedulerConnectorContext,
  WorkerConnector,
  WorkerConnectorContext,
} from './connector.ts';
import { connectorIgnoresKeys } from './errors.ts';
import { type KeyFile, readKeyFile } from './key-file.ts';

/**
 * A connector whose blocks have a MAC outside of the process. Each process reads the key file, so a key is in no message between
 * processes. A connector that ignores keys is refused: its blocks would be loaded without a check.
 */
export class AuthenticatingConnector implements KvConnector {
  readonly authenticatesBlocks = true;
  readonly #inner: KvConnector;
  readonly #file: KeyFile;

  /** @throws KvasirError `keyFileInvalid`, `connectorIgnoresKeys` */
  constructor(inner: KvConnector, name: string, keyFile: string) {
    if (inner.authenticatesBlocks !== true) throw connectorIgnoresKeys({ name });
    this.#inner = inner;
    this.#file = readKeyFile(keyFile);
  }

  async checkSettings(): Promise<void> {
    await this.#inner.checkSettings?.();
  }

  openScheduler(context: SchedulerConnectorContext): Promise<SchedulerConnector> {
    if (this.#file.warning !== undefined) context.event?.(this.#file.warning);
    return this.#inner.openScheduler(context);
  }

  openWorker(context: WorkerConnectorContext): Promise<WorkerConnector> {
    return this.#inner.openWorker({ ...context, macKeys: this.#file.keys });
  }
}
