import type { JsonObject, JsonValue } from '../../base/json.ts';
import type { PlaceKind, WantedBlock } from '../connector.ts';

/** What the client of one request allows, in `kv_transfer_params`. */
export interface RequestLimits {
  /** KV of at most so many tokens is loaded, from the first on. */
  readonly maxLoadTokens: number;
  /** KV of at most the first so many tokens is stored. */
  readonly maxOffloadTokens: number;
  /** Whether blocks of this tier may be loaded. */
  isAllowed(place: PlaceKind | undefined): boolean;
}

const names = ['max_load_tokens', 'max_offload_tokens', 'kv_load_tiers'] as const;

/**
 * Reads the limits of a request. A wrong value is ignored, as in vLLM, and `warn` gets the reason: a request must not
 * fail because of a hint.
 */
export function readRequestLimits(
  params: JsonObject | undefined,
  warn: (message: string) => void = () => undefined,
): RequestLimits {
  if (params === undefined || !names.some((name) => name in params)) return noLimits;
  const tokens = (name: 'max_load_tokens' | 'max_offload_tokens'): number => {
    const value = params[name];
    if (value === undefined || value === null) return Infinity;
    if (typeof value === 'number' && Number.isSafeInteger(value) && value >= 0) return value;
    warn(
      `kv_transfer_params.${name} is ignored: it must be a whole number of at least 0, got ${JSON.stringify(value)}`,
    );
    return Infinity;
  };
  const tiers = params.kv_load_tiers;
  const allowed = tiers === undefined || tiers === null ? undefined : readTiers(tiers);
  if (allowed === 'wrong')
    warn(
      `kv_transfer_params.kv_load_tiers is ignored: it must be an array of objects like {"medium":"STORAGE"}, got ${JSON.stringify(tiers)}`,
    );
  return {
    maxLoadTokens: tokens('max_load_tokens'),
    maxOffloadTokens: tokens('max_offload_tokens'),
    // Host memory is always allowed: an empty list means no secondary tier.
    isAllowed: (place) =>
      place === undefined || allowed === undefined || allowed === 'wrong' || isListed(place, allowed),
  };
}

export const noLimits: RequestLimits = {
  maxLoadTokens: Infinity,
  maxOffloadTokens: Infinity,
  isAllowed: () => true,
};

/** The blocks that may be loaded: in each group the first ones, for at most `maxLoadTokens` tokens. */
export function loadable(
  wanted: readonly WantedBlock[],
  { maxLoadTokens }: RequestLimits,
  blockSizes: readonly number[],
): readonly WantedBlock[] {
  if (maxLoadTokens === Infinity) return wanted;
  const left = blockSizes.map(() => maxLoadTokens);
  return wanted.filter(({ group }) => {
    const size = blockSizes[group]!;
    left[group]! -= size;
    return left[group]! >= 0;
  });
}

type Listed = Partial<PlaceKind>;

function readTiers(value: JsonValue): readonly Listed[] | 'wrong' {
  if (!Array.isArray(value)) return 'wrong';
  const listed: Listed[] = [];
  for (const entry of value as readonly JsonValue[]) {
    if (typeof entry !== 'object' || entry === null || Array.isArray(entry)) return 'wrong';
    const { medium, locality } = entry as JsonObject;
    if (medium !== undefined && medium !== 'CPU' && medium !== 'STORAGE') return 'wrong';
    if (locality !== undefined && locality !== 'LOCAL' && locality !== 'REMOTE') return 'wrong';
    listed.push({ ...(medium === undefined ? {} : { medium }), ...(locality === undefined ? {} : { locality }) });
  }
  return listed;
}

const isListed = (place: PlaceKind, listed: readonly Listed[]): boolean =>
  place.medium === 'CPU' ||
  listed.some(
    ({ medium = place.medium, locality = place.locality }) => medium === place.medium && locality === place.locality,
  );
