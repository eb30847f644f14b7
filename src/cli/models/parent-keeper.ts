import type { KeptResponse, ResponseKeeper } from '../../server/apis/responses/response-keeper.ts';
import type { StoredState } from '../../server/apis/responses/response-store.ts';
import type { StatesOfTenants } from '../../server/models/kept-responses.ts';

type Forget = (tenant: string | undefined, id: string) => void;

/** The parent keeps the responses of its models. */
export class ParentKeeper implements ResponseKeeper {
  readonly #states: StatesOfTenants;
  readonly #send: (tenant: string | undefined, response: KeptResponse) => void;
  #forget: Forget | undefined;
  /** Deleted before there was a store. */
  readonly #early: Parameters<Forget>[] = [];

  constructor(states: StatesOfTenants, send: (tenant: string | undefined, response: KeptResponse) => void) {
    this.#states = states;
    this.#send = send;
  }

  stateOf(tenant: string | undefined): StoredState | undefined {
    return this.#states.get(tenant);
  }

  stored(tenant: string | undefined, response: KeptResponse): void {
    this.#send(tenant, response);
  }

  onForget(forget: Forget): void {
    this.#forget = forget;
    for (const early of this.#early.splice(0)) forget(...early);
  }

  /** The parent has deleted a response. */
  forget(tenant: string | undefined, id: string): void {
    if (this.#forget === undefined) this.#early.push([tenant, id]);
    else this.#forget(tenant, id);
  }
}
