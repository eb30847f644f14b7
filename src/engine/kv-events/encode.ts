import type { EventFormat } from './config.ts';
import type { MsgpackLibrary } from './libraries.ts';
import type { WireEvent } from './wire-events.ts';

/** Kvasir has no data parallelism; routers need the field. */
const dataParallelRank = 0;

/** The payload of a batch: `[seconds, events, data_parallel_rank]` in msgpack. */
export function encodeBatch(
  { encode }: MsgpackLibrary,
  events: readonly WireEvent[],
  seconds: number,
  format: EventFormat,
): Uint8Array {
  // A whole number would be encoded as an integer, and some consumers take only a float.
  const time = Number.isInteger(seconds) ? seconds + 2 ** -20 : seconds;
  const written = format === 'map' ? events : events.map(asArray);
  return encode([time, written, dataParallelRank], { useBigInt64: true });
}

/** vLLM's form before June 2026: the fields by position. Absent ones at the end are left out. */
function asArray(event: WireEvent): unknown[] {
  switch (event.type) {
    case 'BlockStored':
      return trimmed([
        event.type,
        event.block_hashes,
        event.parent_block_hash,
        event.token_ids,
        event.block_size,
        event.lora_id,
        event.medium,
        event.lora_name,
        event.extra_keys,
        event.group_idx,
        event.kv_cache_spec_kind,
        event.kv_cache_spec_sliding_window,
        event.locality,
      ]);
    case 'BlockRemoved':
      return trimmed([event.type, event.block_hashes, event.medium, event.group_idx, event.locality]);
    case 'AllBlocksCleared':
      return [event.type];
  }
}

/** `undefined` is a default: nil in the middle, nothing at the end. */
function trimmed(fields: readonly unknown[]): unknown[] {
  const last = fields.findLastIndex((field) => field !== undefined);
  return fields.slice(0, last + 1).map((field) => field ?? null);
}
