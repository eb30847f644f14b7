import { defineError } from '../base/errors.ts';

/** Errors in the configuration of a connector. They are found at the start, before any request. */
export const kvConfigInvalid = defineError(
  'KVASIR_KV_CONFIG_INVALID',
  'In --kv-transfer-config, `{parameter}` must be {expected}, got {actual}.{hint}',
  400,
);
export const kvConfigNotJson = defineError(
  'KVASIR_KV_CONFIG_NOT_JSON',
  '--kv-transfer-config is not JSON: {reason}. It is an object like \'{"kv_connector":"SharedStorageConnector","kv_role":"kv_both"}\'.',
  400,
);
export const connectorUnknown = defineError(
  'KVASIR_CONNECTOR_UNKNOWN',
  'There is no connector `{name}`.{hint} Built in: {known}. For a class of your own name its module in kv_connector_module_path.',
  400,
);
export const connectorModuleFailed = defineError(
  'KVASIR_CONNECTOR_MODULE_FAILED',
  'The module `{path}` of kv_connector_module_path cannot be imported: {reason}. Correct the path or the module.',
  400,
);
export const connectorClassMissing = defineError(
  'KVASIR_CONNECTOR_CLASS_MISSING',
  'The module `{path}` exports no `{name}`.{hint} It exports: {exports}. Name one of these classes in kv_connector.',
  400,
);
export const keyFileInvalid = defineError(
  'KVASIR_KEY_FILE_INVALID',
  'The key file `{path}` of --kv-transfer-key-file cannot be used: {reason}. It has a key of at least 32 random bytes as hexadecimal digits in each line; the first one is for new blocks. Make one: openssl rand -hex 32 > key; chmod 600 key',
  400,
);
export const connectorIgnoresKeys = defineError(
  'KVASIR_CONNECTOR_IGNORES_KEYS',
  'The connector `{name}` does not authenticate stored blocks, so --kv-transfer-key-file would have no effect. Start without it, or use a connector that sets authenticatesBlocks.',
  400,
);
export const connectorIgnoresEncryption = defineError(
  'KVASIR_CONNECTOR_IGNORES_ENCRYPTION',
  'The connector `{name}` does not encrypt stored blocks, so --kv-transfer-encrypt would have no effect. Start without it, or use a connector that sets encryptsBlocks.',
  400,
);
export const connectorClassInvalid = defineError(
  'KVASIR_CONNECTOR_CLASS_INVALID',
  '`{name}` from `{path}` is not a connector: {reason}. docs/kv-transfer.md has the contract of a connector.',
  400,
);
export const tierSpecInvalid = defineError('KVASIR_TIER_SPEC_INVALID', 'The KV tier `{tier}` is wrong: {reason}.', 400);
export const tiersInvalid = defineError('KVASIR_TIERS_INVALID', 'The KV tiers are wrong: {reason}.', 400);
export const tierUnknown = defineError(
  'KVASIR_TIER_UNKNOWN',
  'There is no KV tier `{tier}` that can do this. GET /tiers lists the tiers.',
  404,
);
export const tierNameTaken = defineError(
  'KVASIR_TIER_NAME_TAKEN',
  'There is a KV tier `{tier}` already. Detach it first, or choose another name.',
  409,
);
export const tiersNotAdministered = defineError(
  'KVASIR_TIERS_NOT_ADMINISTERED',
  'This server has no KV tiers that can be administered. Start it with --kv-tier, such as --kv-tier host:8GiB.',
  409,
);
export const tierClassInvalid = defineError(
  'KVASIR_TIER_CLASS_INVALID',
  'The tier class `{name}` from the module `{path}` cannot be used: {reason}. docs/offloading.md has the contract of a tier.',
  400,
);
export const storageUnusable = defineError(
  'KVASIR_STORAGE_UNUSABLE',
  'The KV storage directory `{path}` cannot be used: {reason}. Create it or make it writable, or name another.',
  500,
);
export const bucketUnusable = defineError(
  'KVASIR_BUCKET_UNUSABLE',
  'The S3 bucket `{bucket}`{at} cannot be used: {reason}. {remedy}.',
  400,
);
export const s3ClientMissing = defineError(
  'KVASIR_S3_CLIENT_MISSING',
  'The S3 tier needs a package that Kvasir does not install. Run: npm install {package}',
  400,
);
export const redisUrlInvalid = defineError(
  'KVASIR_REDIS_URL_INVALID',
  'The URL of the Redis tier cannot be used: {reason}. Write redis://user:password@host:6379/0, or redis://a:6379,b:6379?cluster=true for a cluster, and percent-encode special characters of the password.',
  400,
);
export const redisClientMissing = defineError(
  'KVASIR_REDIS_CLIENT_MISSING',
  'The Redis tier needs a package that Kvasir does not install: {reason}. Run: npm install {package}',
  400,
);
export const redisRefused = defineError(
  'KVASIR_REDIS_REFUSED',
  'The Redis server {server} cannot be used: {reason}. {remedy}.',
  400,
);

/**
 * Errors of a store at run time. Clients never see them: a failed load is recomputed, and a failed save is a future
 * miss.
 */
export const tierClosed = defineError('KVASIR_TIER_CLOSED', 'The tier `{tier}` is closed.', 503);
export const tierFailed = defineError('KVASIR_TIER_FAILED', 'The tier `{tier}` failed to {action}: {reason}.', 503, {
  retryable: true,
});
