import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { trackChild } from '../../src/base/child-processes.ts';
import type { JsonObject } from '../../src/base/json.ts';
import { childProcessIds } from './child-processes.ts';
import { serverEnded } from './errors.ts';
import { recordingModule } from './recording-connector.ts';

/**
 * `kvasir serve` in its own process, on a port that the system chooses. Its worker processes are its children, so the
 * bench can kill or stop them.
 */
export class ServerProcess {
  /** `http://127.0.0.1:<port>`. */
  readonly origin: string;
  readonly #child: ChildProcess;
  readonly #ended: Promise<void>;

  /**
   * `args` follow `kvasir serve`. `environment` is added to this process's. @throws KvasirError `serverEnded` if the
   * server ends before it listens.
   */
  static async start(
    args: readonly string[],
    signal: AbortSignal,
    environment: Readonly<Record<string, string>> = {},
  ): Promise<ServerProcess> {
    signal.throwIfAborted();
    const program = process.argv[1] ?? '';
    const child = spawn(process.execPath, [program, 'serve', '--port', '0', ...args], {
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { ...process.env, ...environment },
    });
    trackChild(child);
    const kill = (): void => void child.kill('SIGKILL');
    signal.addEventListener('abort', kill, { once: true });
    const ended = once(child, 'exit').then(() => signal.removeEventListener('abort', kill));
    const origin = await addressOf(child);
    return new ServerProcess(child, origin, ended);
  }

  private constructor(child: ChildProcess, origin: string, ended: Promise<void>) {
    this.#child = child;
    this.origin = origin;
    this.#ended = ended;
  }

  get processId(): number {
    return this.#child.pid ?? 0;
  }

  /** The ids of the ranks' processes; empty if the only rank is in the server's process. */
  rankProcessIds(): Promise<number[]> {
    return childProcessIds(this.#child.pid ?? 0);
  }

  /** Ends the server as `kill -9` does. Its ranks end when they notice that the server has ended. */
  async kill(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.#ended;
  }

  /** Asks the server to finish its requests and its stores. */
  async stop(): Promise<void> {
    this.#child.kill('SIGTERM');
    await this.#ended;
  }
}

/** The address in the banner on standard error. Later output is read and ignored. */
async function addressOf(child: ChildProcess): Promise<string> {
  let log = '';
  const address = new Promise<string>((resolve) => {
    child.stderr?.on('data', (piece: Buffer) => {
      if (log.length > logMax) return;
      log += piece.toString();
      const match = /^ +address +(http:\/\/\S+)/m.exec(log);
      if (match !== null) resolve(match[1]!);
    });
  });
  const end = once(child, 'exit').then(([code, signal]) => {
    throw serverEnded({ reason: log.trim() || `exit code ${String(code ?? signal)}` });
  });
  end.catch(() => undefined);
  return Promise.race([address, end]);
}

const logMax = 1 << 20;

/** A server that can be killed and started again with the same flags, while clients wait for its new address. */
export class RestartableServer {
  readonly #args: readonly string[];
  readonly #signal: AbortSignal;
  #serving: Promise<ServerProcess>;

  /** @throws KvasirError `serverEnded`. */
  static async start(args: readonly string[], signal: AbortSignal): Promise<RestartableServer> {
    const server = new RestartableServer(args, signal);
    await server.#serving;
    return server;
  }

  private constructor(args: readonly string[], signal: AbortSignal) {
    this.#args = args;
    this.#signal = signal;
    this.#serving = ServerProcess.start(args, signal);
  }

  /** The address for requests; pending while the next server starts. */
  readonly origin = async (): Promise<string> => (await this.#serving).origin;

  async rankProcessIds(): Promise<number[]> {
    return (await this.#serving).rankProcessIds();
  }

  /** Kills the server and starts the next one. No client gets the killed server's address again. */
  async replace(): Promise<void> {
    const killed = await this.#serving;
    this.#serving = killed.kill().then(() => ServerProcess.start(this.#args, this.#signal));
    await this.#serving;
  }

  async kill(): Promise<void> {
    await (await this.#serving).kill();
  }
}

/** The flags of a server with a store. If the settings have `record_path`, the connector records the loaded blocks. */
export function storeArgs(path: string, ranks: number, backend: 'uni' | 'mp', settings: JsonObject): readonly string[] {
  const connector = {
    ...('record_path' in settings
      ? { kv_connector: 'RecordingStorageConnector', kv_connector_module_path: recordingModule }
      : { kv_connector: 'SharedStorageConnector' }),
    kv_role: 'kv_both',
    kv_connector_extra_config: { shared_storage_path: path, ...settings },
  };
  return [
    '--pipeline-parallel-size',
    String(ranks),
    '--distributed-executor-backend',
    backend,
    '--kv-transfer-config',
    JSON.stringify(connector),
  ];
}
