import type { KvGroupSpec } from '../../core/kv-spec.ts';

/** The events of a batch, with vLLM's names and values (`vllm/distributed/kv_events.py`). */
export type WireEvent = BlockStored | BlockRemoved | { readonly type: 'AllBlocksCleared' };

export interface BlockStored extends Place {
  readonly type: 'BlockStored';
  readonly block_hashes: bigint[];
  readonly parent_block_hash: bigint | null;
  /** `block_size` for each hash. None: they are not known any more, and `block_size` is 0. */
  readonly token_ids: number[];
  readonly block_size: number;
  /** vLLM's number of an adapter, which it replaces with the name. */
  readonly lora_id: null;
  readonly lora_name: string | null;
  /** For each hash: the name of the LoRA adapter, and for the first block of a request with a cache salt the salt. */
  readonly extra_keys?: (readonly string[] | null)[];
  readonly kv_cache_spec_kind?: string;
  readonly kv_cache_spec_sliding_window?: number;
}

export interface BlockRemoved extends Place {
  readonly type: 'BlockRemoved';
  readonly block_hashes: bigint[];
}

export interface Place {
  readonly medium: string;
  /** Absent if the model has one group with full attention. */
  readonly group_idx?: number;
  readonly locality?: string;
}

/** A block for `EventBuilder.stored`. */
export interface StoredPart {
  readonly hash: bigint;
  /** Undefined: not known any more. */
  readonly content: BlockContent | undefined;
}

export interface BlockContent {
  readonly parent: bigint | null;
  readonly tokens: Int32Array;
  readonly cacheSalt: string | undefined;
  readonly adapterName?: string | undefined;
}

/** Where blocks are. */
export interface Medium {
  readonly medium: string;
  readonly locality?: string;
}

/** The pool. Its consumers take GPU for the memory where the engine computes, which here may be that of the CPU. */
export const poolMedium: Medium = { medium: 'GPU' };

const kindNames = { full: 'full_attention', window: 'sliding_window', state: 'mamba' } as const;

/** Makes the events of one batch. Blocks that follow each other in a request become one event. */
export class EventBuilder {
  readonly #groups: readonly KvGroupSpec[];
  readonly #events: WireEvent[] = [];

  constructor(groups: readonly KvGroupSpec[]) {
    this.#groups = groups;
  }

  get events(): readonly WireEvent[] {
    return this.#events;
  }

  stored(group: number, medium: Medium, { hash, content }: StoredPart): void {
    const last = this.#events.at(-1);
    if (last?.type === 'BlockStored' && isAt(last, group, medium) && continues(last, content)) {
      last.block_hashes.push(hash);
      last.extra_keys?.push(extraKeysOf(content) ?? null);
      if (content !== undefined) pushTokens(last.token_ids, content.tokens);
      return;
    }
    const spec = this.#groups[group]!;
    const extraKeys = extraKeysOf(content);
    this.#events.push({
      type: 'BlockStored',
      block_hashes: [hash],
      parent_block_hash: content?.parent ?? null,
      token_ids: content === undefined ? [] : Array.from(content.tokens),
      block_size: content === undefined ? 0 : spec.blockSize,
      lora_id: null,
      lora_name: content?.adapterName ?? null,
      ...this.#place(group, medium),
      ...(extraKeys === undefined ? {} : { extra_keys: [extraKeys] }),
      ...(this.#namesGroups ? { kv_cache_spec_kind: kindNames[spec.kind] } : {}),
      ...(spec.kind === 'window' ? { kv_cache_spec_sliding_window: spec.window } : {}),
    });
  }

  removed(group: number, medium: Medium, hash: bigint): void {
    const last = this.#events.at(-1);
    if (last?.type === 'BlockRemoved' && isAt(last, group, medium)) last.block_hashes.push(hash);
    else this.#events.push({ type: 'BlockRemoved', block_hashes: [hash], ...this.#place(group, medium) });
  }

  cleared(): void {
    this.#events.push({ type: 'AllBlocksCleared' });
  }

  get #namesGroups(): boolean {
    return this.#groups.length > 1 || this.#groups[0]!.kind !== 'full';
  }

  #place(group: number, { medium, locality }: Medium): Place {
    return {
      medium,
      ...(this.#namesGroups ? { group_idx: group } : {}),
      ...(locality === undefined ? {} : { locality }),
    };
  }
}

const isAt = (event: Place, group: number, { medium, locality }: Medium): boolean =>
  (event.group_idx ?? 0) === group && event.medium === medium && event.locality === locality;

function continues(last: BlockStored, content: BlockContent | undefined): boolean {
  if (content === undefined) return last.token_ids.length === 0;
  if (last.lora_name !== (content.adapterName ?? null)) return false;
  return last.token_ids.length > 0 && last.block_hashes.at(-1) === content.parent;
}

/** In vLLM's order. */
function extraKeysOf(content: BlockContent | undefined): readonly string[] | undefined {
  const { adapterName, cacheSalt } = content ?? {};
  if (adapterName === undefined && cacheSalt === undefined) return undefined;
  return [...(adapterName === undefined ? [] : [adapterName]), ...(cacheSalt === undefined ? [] : [cacheSalt])];
}

function pushTokens(into: number[], tokens: Int32Array): void {
  for (let i = 0; i < tokens.length; i++) into.push(tokens[i]!);
}
