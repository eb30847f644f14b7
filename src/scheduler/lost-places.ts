import { type BlockPlace, placeName } from '../core/block-place.ts';
import { NULL_BLOCK } from '../core/ids.ts';
import type { KvParts } from '../kv/kv-parts.ts';
import type { KvRequest } from '../kv/kv-request.ts';

/**
 * The places of one request whose KV was lost since its last admission. The plan does not use them: they are for people who
 * watch the cache.
 */
export class LostPlaces {
  readonly #places = new Map<string, BlockPlace>();

  get size(): number {
    return this.#places.size;
  }

  /** Called before these places become invalid: notes those that have KV, or load it. */
  add({ residency }: KvParts, request: KvRequest, places: readonly BlockPlace[]): void {
    for (const place of places) {
      const block = blockAt(request, place);
      if (block === NULL_BLOCK) continue;
      const hasContent = !residency.isOwned(block) || residency.validTokens[block]! > 0 || residency.isLoading(block);
      if (hasContent) this.#places.set(placeName(place), place);
    }
  }

  clear(): void {
    this.#places.clear();
  }

  /** The places with a block, and whether their KV is valid again. */
  *placed(parts: KvParts, request: KvRequest): Iterable<{ block: number; group: number; isValid: boolean }> {
    for (const place of this.#places.values()) {
      const block = blockAt(request, place);
      if (block !== NULL_BLOCK) yield { block, group: place.group, isValid: isValid(parts, request, place) };
    }
  }

  /** Whether the request must still compute or load some of them. */
  isAnyPending(parts: KvParts, request: KvRequest): boolean {
    for (const place of this.#places.values()) if (isPending(parts, request, place)) return true;
    return false;
  }
}

function isPending(parts: KvParts, request: KvRequest, place: BlockPlace): boolean {
  if (isValid(parts, request, place)) return false;
  if (request.needsPlan) return true;
  const { blockSize } = parts.spec.groups[place.group]!;
  const end = Math.min((place.index + 1) * blockSize, request.tokens.length - 1);
  return request.rest().some((span) => span.start < end && span.end > place.index * blockSize);
}

/** Whether the place has the KV of all of its tokens but the last token, which a decode computes next. */
function isValid({ residency, spec }: KvParts, request: KvRequest, place: BlockPlace): boolean {
  const block = blockAt(request, place);
  if (block === NULL_BLOCK) return false;
  if (!residency.isOwned(block)) return true;
  const { blockSize } = spec.groups[place.group]!;
  const wanted = Math.min(blockSize, request.tokens.length - 1 - place.index * blockSize);
  return wanted > 0 && residency.validTokens[block]! >= wanted;
}

function blockAt(request: KvRequest, { group, index }: BlockPlace) {
  const table = request.tables[group]!;
  return index < table.length ? table.at(index) : NULL_BLOCK;
}
