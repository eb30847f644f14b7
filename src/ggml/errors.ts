import { defineError } from '../base/errors.ts';

/** Errors of the machine and of model files, before or while a model is loaded. */
export const nativePackageMissing = defineError(
  'KVASIR_NATIVE_PACKAGE_MISSING',
  'The native libraries for {platform} are not installed. Run: {command} (these versions of {packageName} fit: {versions})',
  500,
);
export const platformUnsupported = defineError(
  'KVASIR_PLATFORM_UNSUPPORTED',
  'There are no native libraries for {platform}. Run Kvasir on one of these platforms: {supported}.',
  500,
);
export const nativeVersionMismatch = defineError(
  'KVASIR_NATIVE_VERSION_MISMATCH',
  'The native libraries in {path} are ggml {found} ({foundCommit}), for which this version of Kvasir is not made. Run: {command} (these versions of {packageName} fit: {versions})',
  500,
);
export const nativeSymbolMissing = defineError(
  'KVASIR_NATIVE_SYMBOL_MISSING',
  'The library {library} has no function {symbol}. Run: {command}',
  500,
);
export const cpusUnavailable = defineError(
  'KVASIR_CPUS_UNAVAILABLE',
  'The compute threads cannot be pinned to the cores {cpus}. {problem} Correct or remove --cpus.',
  500,
);
export const tooManyThreads = defineError(
  'KVASIR_TOO_MANY_THREADS',
  'Cannot compute with {threads} threads: {limit} is the limit. Use a smaller --threads, best the number of cores.',
  500,
);
export const deviceUnavailable = defineError(
  'KVASIR_DEVICE_UNAVAILABLE',
  'No {device} device was found (there are: {found}). {hint}',
  500,
);
export const outOfNativeMemory = defineError(
  'KVASIR_OUT_OF_NATIVE_MEMORY',
  'Could not allocate {amount} for {purpose} on {device}. {hint}',
  503,
  { retryable: true },
);
export const modelFileUnreadable = defineError(
  'KVASIR_MODEL_FILE_UNREADABLE',
  'Cannot read the model file {path}: {reason}. Check the path and its permissions.',
  500,
);

/** Turns an error of the file system into an error of the catalogue. Returns other errors. */
export function withModelFile(path: string, error: unknown): unknown {
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  if (!/^E[A-Z0-9]+$/.test(code)) return error;
  const reason = code === 'ENOENT' ? 'there is no such file' : (error as Error).message;
  return modelFileUnreadable({ path, reason }, error);
}

export const notGguf = defineError(
  'KVASIR_NOT_GGUF',
  '{path} is not a GGUF file: it is {found}. Kvasir reads GGUF models (version {supported}). {hint}',
  500,
);
export const ggufVersionUnsupported = defineError(
  'KVASIR_GGUF_VERSION_UNSUPPORTED',
  '{path} is a GGUF file of version {found}; supported: {supported}, little-endian. Convert the model again.',
  500,
);
export const ggufTruncated = defineError(
  'KVASIR_GGUF_TRUNCATED',
  '{path} is truncated: it has {fileBytes} bytes, but {what} needs {neededBytes}. Download or copy it again.',
  500,
);
export const ggufOversized = defineError(
  'KVASIR_GGUF_OVERSIZED',
  '{path} is too long: it has {fileBytes} bytes, but its last tensor ends at {expectedBytes}. Download or copy it again.',
  500,
);
export const ggufCorrupt = defineError(
  'KVASIR_GGUF_CORRUPT',
  '{path} is corrupt: {problem} (at byte {offset}). Download or copy it again.',
  500,
);
export const ggufNestedArray = defineError(
  'KVASIR_GGUF_NESTED_ARRAY',
  '{path}: metadata {key} is an array of arrays, which llama.cpp cannot read. Remove it: gguf-new-metadata --remove-metadata {key} (of the Python package gguf).',
  500,
);
export const ggufPartNotFirst = defineError(
  'KVASIR_GGUF_PART_NOT_FIRST',
  '{path} is part {part} of {count} of a split model. Give the first part: {first}',
  500,
);
export const ggufPartUnnamed = defineError(
  'KVASIR_GGUF_PART_UNNAMED',
  '{path} is part {part} of {count} of a split model, but its name does not say so. Name it {name}, and the other parts likewise.',
  500,
);
export const metadataMissing = defineError(
  'KVASIR_METADATA_MISSING',
  '{path} has no metadata {key}. Convert the model again.',
  500,
);
export const metadataInvalid = defineError(
  'KVASIR_METADATA_INVALID',
  '{path}: metadata {key} must be {expected}, found {found}. Convert the model again.',
  500,
);
export const architectureUnsupported = defineError(
  'KVASIR_ARCHITECTURE_UNSUPPORTED',
  '{path} holds a model of architecture {found}; supported: {supported}. Choose a model of one of these architectures.',
  500,
);
export const modelFeatureUnsupported = defineError(
  'KVASIR_MODEL_FEATURE_UNSUPPORTED',
  '{path} needs {feature} ({found}), which is not supported for architecture {architecture}. Choose another model.',
  500,
);
export const predictionLayerMissing = defineError(
  'KVASIR_PREDICTION_LAYER_MISSING',
  'The model {path} cannot draft with a layer for multi-token prediction (MTP): {reason}. Use another method than mtp, such as ngram, or a file with that layer.',
  400,
);
export const tensorTypeUnsupported = defineError(
  'KVASIR_TENSOR_TYPE_UNSUPPORTED',
  '{path}: tensor {tensor} is of type {found}; supported: {supported}. Quantize the model to one of these types.',
  500,
);
export const tensorMissing = defineError(
  'KVASIR_TENSOR_MISSING',
  '{path} has no tensor {tensor}, which architecture {architecture} needs. Download or convert the model again.',
  500,
);
export const tensorUnexpected = defineError(
  'KVASIR_TENSOR_UNEXPECTED',
  '{path} has a tensor {tensor}, which Kvasir does not know for architecture {architecture}: the model needs a feature that is not supported. Choose another model.',
  500,
);
export const tensorShapeWrong = defineError(
  'KVASIR_TENSOR_SHAPE_WRONG',
  '{path}: tensor {tensor} has shape {found}, expected {expected}. Download or convert the model again.',
  500,
);
export const modelFileChanged = defineError(
  'KVASIR_MODEL_FILE_CHANGED',
  '{path} changed while it was being read: {problem}. Start again when it is complete.',
  500,
);
export const modelLoadFailed = defineError(
  'KVASIR_MODEL_LOAD_FAILED',
  '{path} could not be loaded by llama.cpp: {reason}. Download or convert the model again.',
  500,
);
