import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { trackChild } from '../../base/child-processes.ts';
import { entryPoint } from '../../base/package-files.ts';
import { leaveRemovedFolder } from '../../base/working-folder.ts';
import {
  type ModelProcess,
  type ModelProcessHooks,
  ProcessEnded,
  type ServedFacts,
} from '../../server/models/contract.ts';
import { decodeError } from '../../worker/error-codec.ts';
import { inheritedFlags } from '../../worker/node-flags.ts';
import { StepDeadlines, WorkerWatch } from '../../worker/worker-watch.ts';
import { type FromModel, type ModelSetup, type ToModel, workerTimeoutMs } from './worker-messages.ts';

interface Load {
  resolve(facts: ServedFacts): void;
  reject(error: Error): void;
}

/** After the shutdown timeout, or after its engine broke, the time in which a process ends itself. Then it is killed. */
const closeMs = 5000;
/** A process without an answer for so long is named by `/health`. */
const silentLeastMs = 2500;

/** A model in a process that runs `kvasir model-worker` (`model-worker.ts`). */
export class ForkedModel implements ModelProcess {
  readonly socketPath: string;
  readonly ready: Promise<ServedFacts>;
  readonly gone: Promise<string>;
  #isBusy: boolean = false;
  readonly #child: ChildProcess;
  readonly #watch: WorkerWatch;
  readonly #stopMs: number;
  #isStopping: boolean = false;
  /** Why this process killed it. */
  #killedBecause: string | undefined;

  constructor(given: Omit<ModelSetup, 'responses'>, hooks: ModelProcessHooks) {
    const setup: ModelSetup = { ...given, responses: hooks.responses };
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
    const timeoutMs = workerTimeoutMs(setup.flags);
    this.#watch = new WorkerWatch({
      timeoutMs,
      // The process watches its steps itself (`engine-watch.ts`).
      deadlines: new StepDeadlines(timeoutMs),
      ping: () => this.#send({ kind: 'ping' }),
      onStuck: (reason) => {
        this.#killedBecause = reason;
        this.kill();
      },
    });
    this.gone = this.#end();
    this.ready = new Promise((resolve, reject) => {
      this.#child.on('message', (message) => this.#receive(message as FromModel, hooks, { resolve, reject }));
      // A message that was sent before the end arrives before it.
      void this.gone.then((reason) => reject(new ProcessEnded(`its process ${reason}`)));
    });
    this.ready.catch(() => undefined);
    this.#send({ kind: 'load', setup });
  }

  #receive(message: FromModel, hooks: ModelProcessHooks, load: Load): void {
    this.#watch.messageReceived();
    switch (message.kind) {
      case 'progress':
        hooks.onProgress(message.status);
        break;
      case 'ready':
        this.#watch.started();
        load.resolve(message.facts);
        break;
      case 'failed':
        load.reject(decodeError(message.error));
        break;
      case 'busy':
        this.#isBusy = message.isBusy;
        if (!message.isBusy) hooks.onIdle();
        break;
      case 'broken':
        this.#killAfter(closeMs);
        hooks.onBroken(message.reason);
        break;
      case 'stored':
        hooks.onStored(message.tenant, message.response);
        break;
      case 'pong':
        this.#watch.answered(false);
        break;
    }
  }

  get silentMs(): number | undefined {
    return this.#watch.unansweredMs(silentLeastMs);
  }

  get isBusy(): boolean {
    return this.#isBusy;
  }

  forget(tenant: string | undefined, id: string): void {
    this.#send({ kind: 'forget', tenant, id });
  }

  stop(): void {
    if (this.#isStopping) return;
    this.#isStopping = true;
    this.#send({ kind: 'stop' });
    this.#killAfter(this.#stopMs);
  }

  kill(): void {
    this.#child.kill('SIGKILL');
  }

  #killAfter(ms: number): void {
    const timer = setTimeout(() => this.kill(), ms).unref();
    void this.gone.then(() => clearTimeout(timer));
  }

  /** Errors are ignored: a process that cannot be reached has ended or will end. */
  #send(message: ToModel): void {
    if (this.#child.connected) this.#child.send(message, () => undefined);
  }

  #end(): Promise<string> {
    const child = this.#child;
    return new Promise((resolve) => {
      // `close` comes after the last message, which `exit` may precede.
      const end = (found: string): void => {
        this.#watch.stop();
        resolve(this.#killedBecause ?? found);
      };
      child.once('close', (code, signal) => end(signal === null ? `exited with code ${code}` : `died of ${signal}`));
      // A process that cannot be told to stop is of no use.
      child.once('disconnect', () => this.kill());
      child.on('error', (error) => {
        if (child.pid === undefined) end(`could not be started: ${error.message}`);
      });
    });
  }
}
