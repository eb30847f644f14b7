import type { JsonObject } from '../../base/json.ts';
import { type ConnectorRequest, type KvBlock, type KvRole, savesKv } from '../connector.ts';

/**
 * Answers a client that sent `do_remote_decode`: a router that sends the prompt to this engine with `max_tokens` 1 and
 * then to an engine that decodes. The answer is `{ do_remote_decode: false, do_remote_prefill, remote_engine_id?,
 * stored_blocks }`. `stored_blocks` counts the blocks that are stored or being saved; 0: there is nothing to load. The
 * keys follow from the tokens, so the answer has no list of keys, and this engine waits for nothing.
 */
export function remoteDecodeAnswer(
  request: ConnectorRequest,
  valid: () => readonly KvBlock[],
  { role, engineId }: { readonly role: KvRole; readonly engineId?: string | undefined },
): { readonly kvTransferParams?: JsonObject } {
  if (request.kvTransferParams?.do_remote_decode !== true) return {};
  const stored = savesKv(role) ? valid().length : 0;
  const engine = engineId === undefined ? {} : { remote_engine_id: engineId };
  return {
    kvTransferParams: {
      do_remote_decode: false,
      do_remote_prefill: stored > 0,
      ...engine,
      stored_blocks: stored,
    },
  };
}
