import type { JsonObject } from '../../base/json.ts';
import type { BlockKey } from '../block-key.ts';
import type { ConnectorRequest, KvBlock, KvIdentity, SchedulerConnectorContext } from '../connector.ts';
import { modelFolder } from '../tier/identity.ts';

/** The request is a prefill whose client sends the decode to another server, with the answer of this one. */
export const isRemoteDecode = (request: Pick<ConnectorRequest, 'kvTransferParams'>): boolean =>
  request.kvTransferParams?.do_remote_decode === true;

/**
 * The blocks of a request with `do_remote_decode` that are stored or being saved. A block table has fewer: it has no block of a
 * window group that later tokens do not read, and the other server may load such a block.
 */
export class RemoteDecode {
  readonly #blocks = new Map<BlockKey, KvBlock>();

  add(blocks: readonly KvBlock[]): void {
    for (const block of blocks) this.#blocks.set(block.key, block);
  }

  get blocks(): readonly KvBlock[] {
    return [...this.#blocks.values()];
  }
}

export interface RemoteDecodeOptions {
  readonly engineId?: string | undefined;
  readonly identities: SchedulerConnectorContext['identities'];
}

/**
 * Answers a client that sent `do_remote_decode`: a router that sends the prompt to this engine with `max_tokens` 1 and
 * then to an engine that decodes. `remote_block_ids` has the blocks of each KV group that are stored or being saved, by
 * their index in the sequence. Keys follow from the tokens, so the answer needs no keys. `stored_blocks` counts them; 0:
 * there is nothing to load. `remote_kv_identity` names the model and layout of the blocks.
 */
export function remoteDecodeAnswer(
  request: ConnectorRequest,
  stored: readonly KvBlock[],
  { engineId, identities }: RemoteDecodeOptions,
): { readonly kvTransferParams?: JsonObject } {
  if (!isRemoteDecode(request)) return {};
  const identity = identities[0]!;
  const engine = engineId === undefined ? {} : { remote_engine_id: engineId };
  const blocks = { remote_block_ids: indexesByGroup(stored, identity), remote_kv_identity: modelFolder(identity) };
  return {
    kvTransferParams: {
      do_remote_decode: false,
      do_remote_prefill: stored.length > 0,
      ...engine,
      remote_request_id: request.id,
      ...(stored.length === 0 ? {} : blocks),
      stored_blocks: stored.length,
    },
  };
}

function indexesByGroup(blocks: readonly KvBlock[], { groups }: KvIdentity): number[][] {
  const indexes = groups.map((): number[] => []);
  for (const { group, index } of blocks) indexes[group]!.push(index);
  return indexes.map((ofGroup) => ofGroup.sort((a, b) => a - b));
}
