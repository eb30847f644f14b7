import { AssertionError } from '../../base/assert.ts';
import { KvasirError } from '../../base/errors.ts';
import type { JsonObject } from '../../base/json.ts';
import { didYouMean } from '../../base/nearest-name.ts';
import type { Crc32, KvIdentity, MacKeys } from '../connector.ts';
import { tierClassInvalid } from '../errors.ts';
import { exportOf, importModule, isRecord, messageOf } from '../own-module.ts';
import type { Tier } from '../tier/tier.ts';
import type { OwnSpec } from './tier-spec.ts';

/** What a tier of the user's gets when it is opened. */
export interface OwnTierContext {
  /** The name that the tier must have. */
  readonly name: string;
  /** Of one rank. Blocks of another identity must not be found: the identity is a part of the address of each block. */
  readonly identity: KvIdentity;
  /** False beside the scheduler, where the tier is only asked which blocks it has. True beside the pool of a rank. */
  readonly movesBlocks: boolean;
  /** A faster CRC32 than Node's, if the machine has one; for `BlockCodec`. */
  readonly crc32?: Crc32 | undefined;
  /** The keys of `--kv-transfer-key-file`; for `BlockCodec`. The tier must then have `authenticatesBlocks`. */
  readonly macKeys?: MacKeys | undefined;
  /** `--kv-transfer-encrypt`; for `BlockCodec`, whose `encodeInto` then encrypts. The tier must then have `encryptsBlocks`. */
  readonly encrypts?: boolean | undefined;
  /** Receives messages for the operator. */
  readonly event?: ((message: string) => void) | undefined;
}

/**
 * A class of the user's for `secondary_tiers`, as in vLLM: `type` is its name, and the module of `module_path` exports it.
 * `open` is called once beside the scheduler and once beside each pool, in every process. `settings`: the other fields of
 * the tier. `open` rejects if the settings are wrong; a server that is down is no error.
 */
export interface TierClass {
  open(settings: JsonObject, context: OwnTierContext): Promise<Tier>;
}

const methods = ['has', 'load', 'store', 'delete', 'takeEvicted', 'counters', 'close'] as const;

/** @throws KvasirError `tierClassInvalid` with the reason. */
export async function findTierClass({ modulePath: path, className: name }: OwnSpec): Promise<TierClass> {
  const invalid = (reason: string, cause?: unknown) => tierClassInvalid({ name, path, reason }, cause);
  let exported: Readonly<Record<string, unknown>>;
  try {
    exported = await importModule(path);
  } catch (error) {
    throw invalid(`the module cannot be imported: ${messageOf(error)}`, error);
  }
  const found = exportOf(exported, name);
  if (found === undefined) {
    const names = Object.keys(exported);
    throw invalid(
      `the module has no such export.${didYouMean(name, names)} It exports ${names.join(', ') || 'nothing'}`,
    );
  }
  if (!isTierClass(found)) throw invalid('it has no static method `open`');
  return found;
}

/** @throws KvasirError `tierClassInvalid` with the reason, or the KvasirError of the class. */
export async function openOwnTier(spec: OwnSpec, context: OwnTierContext): Promise<Tier> {
  const { modulePath: path, className: name, settings } = spec;
  const invalid = (reason: string, cause?: unknown) => tierClassInvalid({ name, path, reason }, cause);
  const found = await findTierClass(spec);
  let tier: unknown;
  try {
    tier = await found.open(settings, context);
  } catch (error) {
    if (error instanceof KvasirError || error instanceof AssertionError) throw error;
    throw invalid(`\`open\` failed with "${messageOf(error)}"`, error);
  }
  if (!isRecord(tier)) throw invalid('`open` returned no tier');
  const missing = methods.filter((method) => typeof tier[method] !== 'function');
  if (missing.length > 0) throw invalid(`its tier has no method ${missing.join(', ')}`);
  if (context.macKeys !== undefined && tier.authenticatesBlocks !== true)
    throw invalid('its tier does not say that it authenticates blocks, which --kv-transfer-key-file demands');
  if (context.encrypts === true && tier.encryptsBlocks !== true)
    throw invalid('its tier does not say that it encrypts blocks, which --kv-transfer-encrypt demands');
  if (tier.name !== context.name)
    throw invalid(`its tier has the name ${JSON.stringify(tier.name)} and not "${context.name}"`);
  return tier as unknown as Tier;
}

const isTierClass = (value: unknown): value is TierClass =>
  (typeof value === 'function' || isRecord(value)) && typeof (value as Partial<TierClass>).open === 'function';
