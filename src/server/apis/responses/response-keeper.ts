import type { ConversationItem } from './conversation-items.ts';
import type { StoredState } from './response-store.ts';

/** A stored response as plain data. */
export interface KeptResponse {
  readonly id: string;
  readonly json: string;
  /** The response that it continues. */
  readonly previousId: string | undefined;
  /** Of its input and output; the output is last. */
  readonly items: readonly ConversationItem[];
  readonly outputIds: readonly string[];
}

/** Keeps the stored responses of a server beyond its end. */
export interface ResponseKeeper {
  /** What it keeps of a tenant. Called once for each, before the first response is stored. */
  stateOf(tenant: string | undefined): StoredState | undefined;
  /** Called before a client can name the response as ended. */
  stored(tenant: string | undefined, response: KeptResponse): void;
  /** Calls `forget` for each response that is deleted elsewhere. */
  onForget(forget: (tenant: string | undefined, id: string) => void): void;
}
