import { placeName } from '../core/block-place.ts';
import type { AdmissionParts } from './admit.ts';
import type { Match } from './external-kv.ts';
import type { RequestState } from './request-state.ts';
import { spansOf } from './spans-of.ts';

/**
 * A race computes the first tokens of a prompt while a tier loads the last blocks, until the two meet (Cake, ICML 2025).
 * Only a request that is alone races, because the processor has no other work then.
 *
 *   blocks    0  1  2  3  4  5  6  7  8  9
 *   admitted  computes -> | <------ loads       the cut where both are expected to end at the same time
 *   loaded    ######-> | <-- # # # # # #        loading was faster than expected: a part of the rest is loaded, too
 *   met       #############################
 *
 * Each block is either computed or loaded: a load begins only in blocks without a computed token, and the owner computes
 * no token of a block that loads. So the race ends without cancelled loads. If loading is slower than expected, the request
 * waits for the loads that it has ordered.
 */
export function continueRaces(parts: AdmissionParts): void {
  const { running, waiting } = parts;
  const isAlone = running.size === 1 && waiting.size === 0;
  for (let i = 0; i < running.size; i++) {
    const state = running.at(i);
    if (state.race !== undefined) continueRace(parts, state, state.race, isAlone);
  }
}

/** Whether a request of this model may compute tokens before its later blocks are loaded. */
export const mayRace = ({ kv, loadChoice }: AdmissionParts): boolean =>
  loadChoice !== undefined && kv.parts.spec.groups.length === 1 && kv.parts.groups[0]!.allocatesAll;

/** The loads of the request are over: orders some of the promised blocks that it has not computed yet. */
function continueRace(
  { kv, external, loadChoice }: AdmissionParts,
  state: RequestState,
  race: Match,
  isAlone: boolean,
): void {
  if (kv.awaitsLoad(state.kv)) return;
  const uncomputed = new Set(kv.uncomputed(state.kv).map(placeName));
  const blocks = race.blocks.filter((block) => uncomputed.has(placeName(block)) && external!.isUsable(state, block));
  state.race = blocks.length === 0 ? undefined : { ...race, blocks };
  if (state.race === undefined) return;
  const more = loadChoice!.chooseMore(state, state.race, isAlone ? 'race' : 'none');
  const placed = kv.startLoads(state.kv, more.blocks);
  if (placed.length === 0) return;
  state.loadsInstead(spansOf(kv, placed));
  external!.admitted(state, more, placed);
  state.race = withoutBlocks(state.race, more);
}

/** The found blocks that were not chosen; undefined if all were chosen. */
export function withoutBlocks(found: Match, { blocks: chosen }: Match): Match | undefined {
  const names = new Set(chosen.map(placeName));
  const blocks = found.blocks.filter((block) => !names.has(placeName(block)));
  return blocks.length === 0 ? undefined : { ...found, blocks };
}
