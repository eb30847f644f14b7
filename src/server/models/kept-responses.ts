import type { KeptResponse } from '../apis/responses/response-keeper.ts';
import { ResponseStore, type StoredState } from '../apis/responses/response-store.ts';
import { Responses } from '../apis/responses/responses.ts';

/** By tenant. */
export type StatesOfTenants = ReadonlyMap<string | undefined, StoredState>;

/**
 * The ended responses of all models, in the memory of one store. They outlive the processes of their models: clients read them also
 * when the model is unloaded or hangs, and its next process gets them.
 */
export class KeptResponses {
  readonly #bytesMax: number;
  readonly #all = new Set<ResponseStore>();
  readonly #models = new Map<string, Map<string | undefined, ResponseStore>>();

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  stored(model: string, tenant: string | undefined, response: KeptResponse): void {
    const { id, json, previousId, items, outputIds } = response;
    const store = this.#storeOf(model, tenant);
    const history = previousId === undefined ? undefined : store.history(previousId);
    // Without the conversation before it, it would be continued in another way than its process does.
    if (previousId !== undefined && history === undefined) return;
    const output = items.slice(items.length - outputIds.length);
    store.put({ id, json, history, items, outputItems: new Map(outputIds.map((itemId, i) => [itemId, output[i]!])) });
  }

  find(tenant: string | undefined, id: string): { readonly model: string; readonly responses: Responses } | undefined {
    for (const [model, tenants] of this.#models) {
      const store = tenants.get(tenant);
      if (store?.json(id) !== undefined) return { model, responses: new Responses(store, tenant) };
    }
    return undefined;
  }

  /** For the next process of a model. */
  statesOf(model: string): StatesOfTenants {
    return new Map(Array.from(this.#models.get(model) ?? [], ([tenant, store]) => [tenant, store.state()]));
  }

  #storeOf(model: string, tenant: string | undefined): ResponseStore {
    const tenants = this.#models.get(model) ?? new Map<string | undefined, ResponseStore>();
    this.#models.set(model, tenants);
    const known = tenants.get(tenant);
    if (known !== undefined) return known;
    const store = new ResponseStore(this.#bytesMax, this.#all);
    tenants.set(tenant, store);
    return store;
  }
}
