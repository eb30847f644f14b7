import { defineError } from '../base/errors.ts';

/** Faults of the machine and of model files, met before or while a model is loaded. */
export const nativePackageMissing = defineError(
  'KVASIR_NATIVE_PACKAGE_MISSING',
  'The native libraries for {platform} are not installed. Run: npm install {packageName}@{version}',
  500,
);
export const platformUnsupported = defineError(
  'KVASIR_PLATFORM_UNSUPPORTED',
  'There are no native libraries for {platform}. Supported: {supported}.',
  500,
);
export const nativeVersionMismatch = defineError(
  'KVASIR_NATIVE_VERSION_MISMATCH',
  'The native libraries in {path} are ggml {found} ({foundCommit}), but this version of Kvasir is made for {expected} ({expectedCommit}). Run: npm install {packageName}@{version}',
  500,
);
export const nativeSymbolMissing = defineError(
  'KVASIR_NATIVE_SYMBOL_MISSING',
  'The library {library} has no function {symbol}. Run: npm install {packageName}@{version}',
  500,
);
export const deviceUnavailable = defineError(
  'KVASIR_DEVICE_UNAVAILABLE',
  'No {device} device was found (there are: {found}). {hint}',
  500,
);
export const outOfNativeMemory = defineError(
  'KVASIR_OUT_OF_NATIVE_MEMORY',
  'Could not allocate {bytes} bytes for {purpose} on {device}. {hint}',
  500,
);
