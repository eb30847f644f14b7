import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { trackChild } from '../../base/child-processes.ts';
import { entryPoint } from '../../base/package-files.ts';
import { leaveRemovedFolder } from '../../base/working-folder.ts';
import type { ModelProcess, ModelProcessHooks, ServedFacts } from '../../server/models/contract.ts';
import { decodeError } from '../../worker/error-codec.ts';
import { inheritedFlags } from '../../worker/node-flags.ts';
import type { FromModel, ModelSetup, ToModel } from './worker-messages.ts';

/** After the shutdown timeout, the time in which a process closes its engine. Then it is killed. */
const closeMs = 5000;

/** A model in a process that runs `kvasir model-worker` (`model-worker.ts`). */
export class ForkedModel implements ModelProcess {
  readonly socketPath: string;
  readonly ready: Promise<ServedFacts>;
  readonly gone: Promise<string>;
  #isBusy: boolean = false;
  readonly #child: ChildProcess;
  readonly #stopMs: number;
  #isStopping: boolean = false;

  constructor(setup: ModelSetup, { onProgress, onIdle }: ModelProcessHooks) {
    this.socketPath = setup.socketPath;
    this.#stopMs = setup.flags.shutdownTimeout * 1000 + closeMs;
    leaveRemovedFolder();
    const entry = fileURLToPath(entryPoint('src/main'));
    // The name is for the list of processes. It is that of a file, which may begin with `-`. Output goes to standard error, as that of the server.
    this.#child = fork(entry, ['model-worker', '--', setup.name], {
      serialization: 'advanced',
      stdio: ['ignore', 2, 2, 'ipc'],
      execArgv: inheritedFlags(),
      // The service manager is told by the server only.
      env: { ...process.env, NOTIFY_SOCKET: undefined },
    });
    trackChild(this.#child);
    this.gone = this.#end();
    this.ready = new Promise((resolve, reject) => {
      this.#child.on('message', (given) => {
        const message = given as FromModel;
        if (message.kind === 'progress') onProgress(message.status);
        else if (message.kind === 'ready') resolve(message.facts);
        else if (message.kind === 'failed') reject(decodeError(message.error));
        else {
          this.#isBusy = message.isBusy;
          if (!message.isBusy) onIdle();
        }
      });
      // A message that was sent before the end arrives before it.
      void this.gone.then((reason) => reject(new Error(`its process ${reason}`)));
    });
    this.ready.catch(() => undefined);
    this.#send({ kind: 'load', setup });
  }

  get isBusy(): boolean {
    return this.#isBusy;
  }

  stop(): void {
    if (this.#isStopping) return;
    this.#isStopping = true;
    this.#send({ kind: 'stop' });
    const timer = setTimeout(() => this.kill(), this.#stopMs).unref();
    void this.gone.then(() => clearTimeout(timer));
  }

  kill(): void {
    this.#child.kill('SIGKILL');
  }

  /** Errors are ignored: a process that cannot be reached has ended or will end. */
  #send(message: ToModel): void {
    if (this.#child.connected) this.#child.send(message, () => undefined);
  }

  #end(): Promise<string> {
    const child = this.#child;
    return new Promise((resolve) => {
      // `close` comes after the last message, which `exit` may precede.
      child.once('close', (code, signal) =>
        resolve(signal === null ? `exited with code ${code}` : `died of ${signal}`),
      );
      child.on('error', (error) => {
        if (child.pid === undefined) resolve(`could not be started: ${error.message}`);
      });
    });
  }
}
