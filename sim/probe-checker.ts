import { assert } from '../src/base/assert.ts';
import type { ConnectorRequest, LoadJob, MatchAnswer } from '../src/connector/connector.ts';
import { placeName } from '../src/core/block-place.ts';
import type { RequestId } from '../src/core/ids.ts';

/**
 * I3 for places that are not worth loading from: if blocks of a place were found at `probeAfter` admissions, one of these
 * admissions loads some of them, so that the engine notices when the place becomes faster. The checker sees only questions,
 * answers and loads. For models with one group that keeps all blocks.
 *
 * It counts the first admission of each request. The engine may count more admissions, and then measures earlier.
 */
export class ProbeChecker {
  readonly #blockSize: number;
  readonly #probeAfter: number;
  /** Places of blocks that a request was promised in this plan. */
  readonly #promised = new Map<RequestId, ReadonlySet<string>>();
  readonly #admitted = new Set<RequestId>();
  /** By place: admissions since its last load. */
  readonly #skipped = new Map<string, number>();

  constructor(blockSize: number, probeAfter: number) {
    this.#blockSize = blockSize;
    this.#probeAfter = probeAfter;
  }

  /** Before the scheduler plans. */
  planning(): void {
    this.#promised.clear();
  }

  /** `isUsable`: whether the engine may load the block from this place. */
  asked(
    { id, wanted, tokenCount }: ConnectorRequest,
    answer: MatchAnswer,
    isUsable: (key: string, place: string) => boolean,
  ): void {
    const places = new Set<string>();
    const keys = new Map<string, string>(wanted.map((block) => [placeName(block), block.key]));
    for (const block of answer.kind === 'found' ? answer.blocks : []) {
      const { key, place, index } = block;
      // The last token is computed in any case, so a block that ends with it may not be needed.
      const isNeeded = (index + 1) * this.#blockSize < tokenCount;
      if (isNeeded && keys.get(placeName(block)) === key && isUsable(key, place)) places.add(place);
      keys.delete(placeName(block));
    }
    this.#promised.set(id, places);
  }

  allocated({ id }: ConnectorRequest, load: LoadJob | undefined): void {
    const loaded = new Set(load?.blocks.map(({ place }) => place));
    for (const place of loaded) this.#skipped.set(place, 0);
    if (this.#admitted.has(id)) return;
    this.#admitted.add(id);
    for (const place of this.#promised.get(id) ?? []) {
      if (loaded.has(place)) continue;
      const skipped = (this.#skipped.get(place) ?? 0) + 1;
      this.#skipped.set(place, skipped);
      assert(
        skipped < this.#probeAfter,
        `I3: ${skipped} requests found blocks in ${place}, and none of them was loaded to measure the place again`,
      );
    }
  }
}
