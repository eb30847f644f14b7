import { defineError } from '../../base/errors.ts';

/** Errors of KV events. They are found at the start, before any request. */
export const kvEventsConfigInvalid = defineError(
  'KVASIR_KV_EVENTS_CONFIG_INVALID',
  'The KV events config is invalid: {problem}. An example: {"enable_kv_cache_events":true,"endpoint":"tcp://*:5557"}',
  400,
);
export const kvEventsPackageMissing = defineError(
  'KVASIR_KV_EVENTS_PACKAGE_MISSING',
  'KV events need packages that Kvasir does not install: {reason}. Run: npm install {packages}',
  400,
);
export const kvEventsAddressUnusable = defineError(
  'KVASIR_KV_EVENTS_ADDRESS_UNUSABLE',
  'The address {address} of KV events cannot be used: {reason}. Name another address as {key} in --kv-events-config, or end the process that uses it.',
  400,
);
