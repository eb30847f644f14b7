import type { KeptResponse } from '../../server/apis/responses/response-keeper.ts';
import type { LoadStatus } from '../../server/loading-routes.ts';
import type { ServedFacts } from '../../server/models/contract.ts';
import type { StatesOfTenants } from '../../server/models/kept-responses.ts';
import type { ErrorMessage } from '../../worker/error-codec.ts';
import type { ServeFlags } from '../serve.ts';

/** What the process of a model needs. Flags are plain data, read by its parent. */
export interface ModelSetup {
  readonly name: string;
  readonly aliases: readonly string[];
  /** A GGUF file. */
  readonly path: string;
  readonly flags: ServeFlags;
  /** What earlier processes of the model have stored. */
  readonly responses: StatesOfTenants;
  /** Where it listens. */
  readonly socketPath: string;
}

export type ToModel =
  | { readonly kind: 'load'; readonly setup: ModelSetup }
  /** A stored response was deleted. */
  | { readonly kind: 'forget'; readonly tenant: string | undefined; readonly id: string }
  | { readonly kind: 'ping' }
  | { readonly kind: 'stop' };

export type FromModel =
  | { readonly kind: 'progress'; readonly status: LoadStatus }
  | { readonly kind: 'ready'; readonly facts: ServedFacts }
  /** Sent when it changes. */
  | { readonly kind: 'busy'; readonly isBusy: boolean }
  | { readonly kind: 'failed'; readonly error: ErrorMessage }
  /** The engine computes nothing any more, and the process ends. */
  | { readonly kind: 'broken'; readonly reason: string }
  | { readonly kind: 'stored'; readonly tenant: string | undefined; readonly response: KeptResponse }
  | { readonly kind: 'pong' };

/** A process that does not answer for so long is killed. */
export const workerTimeoutMs = ({ workerTimeout }: Pick<ServeFlags, 'workerTimeout'>): number =>
  workerTimeout > 0 ? workerTimeout * 1000 : Infinity;
