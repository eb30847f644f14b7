import { ServerProcess } from '../../src/cli/proof/server-process.ts';

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
