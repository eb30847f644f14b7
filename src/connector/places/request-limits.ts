import { describeValue } from '../../base/describe-value.ts';
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
    warn(`kv_transfer_params.${name} is ignored: it must be a whole number of at least 0, got ${describeValue(value)}`);
    return Infinity;
  };
  const tiers = params.kv_load_tiers;
  const allowed = tiers === undefined || tiers === null ? undefined : readTiers(tiers, warn);
  return {
    maxLoadTokens: tokens('max_load_tokens'),
    maxOffloadTokens: tokens('max_offload_tokens'),
    // Host memory is always allowed: an empty list means no secondary tier.
    isAllowed: (place) => place === undefined || allowed === undefined || isListed(place, allowed),
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

/** As in vLLM: entries that are wrong are skipped. Undefined: none is right, and so all tiers are allowed. */
function readTiers(value: JsonValue, warn: (message: string) => void): readonly Listed[] | undefined {
  const ignored = (what: string, wrong: JsonValue): void =>
    warn(
      `kv_transfer_params.${what} is ignored: kv_load_tiers is an array of objects like {"medium":"STORAGE"}, got ${describeValue(wrong)}`,
    );
  if (!Array.isArray(value)) {
    ignored('kv_load_tiers', value);
    return undefined;
  }
  const entries = value as readonly JsonValue[];
  const listed = entries.flatMap((entry, i) => {
    const read = readTier(entry);
    if (read === undefined) ignored(`kv_load_tiers[${i}]`, entry);
    return read ?? [];
  });
  return listed.length === 0 && entries.length > 0 ? undefined : listed;
}

function readTier(entry: JsonValue): Listed | undefined {
  if (typeof entry !== 'object' || entry === null || Array.isArray(entry)) return undefined;
  const { medium, locality } = entry as JsonObject;
  const [ofMedium, ofLocality] = [choiceOf(medium, ['CPU', 'STORAGE']), choiceOf(locality, ['LOCAL', 'REMOTE'])];
  if (ofMedium === undefined || ofLocality === undefined) return undefined;
  return {
    ...(ofMedium === 'any' ? {} : { medium: ofMedium }),
    ...(ofLocality === 'any' ? {} : { locality: ofLocality }),
  };
}

/** In any case of letters. Undefined: another value. */
function choiceOf<Choice extends string>(
  value: JsonValue | undefined,
  choices: readonly Choice[],
): Choice | 'any' | undefined {
  if (value === undefined || value === null) return 'any';
  return typeof value === 'string' ? choices.find((choice) => choice === value.toUpperCase()) : undefined;
}

const isListed = (place: PlaceKind, listed: readonly Listed[]): boolean =>
  place.medium === 'CPU' ||
  listed.some(
    ({ medium = place.medium, locality = place.locality }) => medium === place.medium && locality === place.locality,
  );
