import type { Download } from '../apis/ollama/model-orders.ts';
import type { KeptResponse } from '../apis/responses/response-keeper.ts';
import type { LoadStatus } from '../loading-routes.ts';
import type { StatesOfTenants } from './kept-responses.ts';

/** A model that a server of several models can load. */
export interface ModelEntry {
  readonly name: string;
  /** Other names by which requests may ask for it. */
  readonly aliases: readonly string[];
  /** Of its file, or the first part of it. Absent: it is not downloaded. */
  readonly path?: string;
}

/** Where the models come from. Files may appear and vanish while the server runs. */
export interface ModelSource {
  /** In the order of lists. */
  list(): Promise<readonly ModelEntry[]>;
  /** By its name or an alias; undefined: there is no such model. */
  find(name: string): Promise<ModelEntry | undefined>;
  /** Downloads what is missing of the model, or its newer version. Does nothing for a file. */
  pull(model: ModelEntry): Download;
  /** Finds the file, downloads it if that is allowed, and says how much memory the model needs. @throws why it cannot be loaded */
  prepare(model: ModelEntry, onProgress: (status: LoadStatus) => void): Promise<PreparedModel>;
}

export interface PreparedModel {
  /** Memory of its process: weights, KV pool, and an estimate of the rest. */
  readonly bytes: number;
  /** The same in the memory of the GPU; default: 0. */
  readonly gpuBytes?: number;
  /** Called after a failed load. Rejects if the files of the model have changed since `prepare`. */
  checkFiles?(): Promise<void>;
  /** Starts a process, which loads the model. */
  start(hooks: ModelProcessHooks): ModelProcess;
}

export interface ModelProcessHooks {
  onProgress(status: LoadStatus): void;
  /** Called when `isBusy` has become false. */
  onIdle(): void;
  /** Its engine computes nothing any more. The process ends soon. */
  onBroken(reason: string): void;
  /** A response is stored. */
  onStored(tenant: string | undefined, response: KeptResponse): void;
  /** What its processes before have stored. */
  readonly responses: StatesOfTenants;
}

/** The process has ended before its model was loaded. */
export class ProcessEnded extends Error {}

/** What the process says when it serves. */
export interface ServedFacts {
  /** The name, and all other names that its requests may have. */
  readonly names: readonly string[];
  readonly maxModelLen: number;
  readonly architecture: string;
}

/** A model in a process of its own, which serves the whole API of one model on a socket that only its parent knows. */
export interface ModelProcess {
  /** Path of a Unix socket, or of a named pipe. */
  readonly socketPath: string;
  /** Rejects if the model cannot be loaded, or if the process ends before. */
  readonly ready: Promise<ServedFacts>;
  /** Resolves to the predicate of a sentence when the process has ended: `died of SIGKILL`. */
  readonly gone: Promise<string>;
  /** Whether the engine has work, such as a response in the background, also without an open request. */
  readonly isBusy: boolean;
  /** How long it has not answered, if that is unusually long. */
  readonly silentMs: number | undefined;
  /** A stored response was deleted. */
  forget(tenant: string | undefined, id: string): void;
  /** Refuses new requests, finishes the running ones within the shutdown timeout, and ends. */
  stop(): void;
  /** Ends at once. */
  kill(): void;
}

export type ModelState = 'unloaded' | 'loading' | 'loaded' | 'failed';

/** A model as lists show it. */
export interface ModelReport {
  readonly entry: ModelEntry;
  readonly state: ModelState;
  /** While it loads. */
  readonly progress?: LoadStatus;
  /** Why the last load failed, or how the process ended. */
  readonly failure?: { readonly code: string; readonly message: string };
  /** `silentMs` of its process. */
  readonly silentMs?: number;
  readonly facts?: ServedFacts;
  readonly bytes?: number;
  readonly gpuBytes?: number;
}
