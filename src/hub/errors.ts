import { defineError } from '../base/errors.ts';

export const hubNameInvalid = defineError(
  'KVASIR_HUB_NAME_INVALID',
  'The model name {name} is wrong: {reason}. Write hf:owner/repository, hf:owner/repository:Q8_0 or hf:owner/repository:file.gguf.',
  400,
);
export const modelNotPath = defineError(
  'KVASIR_MODEL_NOT_PATH',
  'There is no file {path}. If it is a model on Hugging Face, write {suggestion}. Kvasir runs GGUF files; their repositories often have names that end with -GGUF.',
  404,
);
export const hubUnreachable = defineError(
  'KVASIR_HUB_UNREACHABLE',
  'The model hub {endpoint} does not answer: {reason}. Check the network, or HF_ENDPOINT if you use a mirror. Models that are downloaded already run without it.',
  502,
  { retryable: true },
);
export const hubRefused = defineError(
  'KVASIR_HUB_REFUSED',
  'The model hub {endpoint} answered with status {status} for {what}: {reason}. {remedy}.',
  502,
);
export const hubAnswerInvalid = defineError(
  'KVASIR_HUB_ANSWER_INVALID',
  'The answer of the model hub {endpoint} has a wrong {field}: {found}; expected {expected}. Nothing of it was used. If you use a mirror or a proxy, check it, or use another HF_ENDPOINT.',
  502,
);
export const hubNotSecure = defineError(
  'KVASIR_HUB_NOT_SECURE',
  'The model hub {endpoint} has no https address, so others on the network could change what it sends. Set HF_ENDPOINT to an https address, or KVASIR_HUB_ALLOW_HTTP=1 if you trust the network.',
  400,
);
export const hubOffline = defineError(
  'KVASIR_HUB_OFFLINE',
  'The model {name} is not downloaded, and HF_HUB_OFFLINE is set. Unset it, and run `kvasir pull {name}`.',
  404,
);
export const noGgufFiles = defineError(
  'KVASIR_HUB_NO_GGUF',
  'The repository {repository} has no GGUF files.{hint} Kvasir runs GGUF files only.',
  404,
);
export const selectorUnknown = defineError(
  'KVASIR_HUB_FILE_UNKNOWN',
  'The repository {repository} has no model {selector}. It has: {known}. Name one of these, as in hf:{repository}:{example}.',
  404,
);
export const selectorAmbiguous = defineError(
  'KVASIR_HUB_FILE_AMBIGUOUS',
  'The repository {repository} has several models for {selector}: {known}. Name one, as in hf:{repository}:{example}.',
  400,
);
export const downloadStopped = defineError(
  'KVASIR_DOWNLOAD_STOPPED',
  'The download of {file} failed after {receivedBytes} of {totalBytes} bytes: {reason}. Run the command again: it continues there.',
  502,
  { retryable: true },
);
export const downloadCorrupt = defineError(
  'KVASIR_DOWNLOAD_CORRUPT',
  'The downloaded bytes of {file} do not have the checksum {expected} that the hub reports, but {found}. They are removed. Run the command again; if this repeats, a proxy or a mirror changes the file.',
  502,
  { retryable: true },
);
export const diskTooSmall = defineError(
  'KVASIR_DISK_TOO_SMALL',
  'The download of {name} needs {neededBytes} more bytes, but {folder} has {freeBytes} bytes free. Free some space (`kvasir list`, `kvasir rm`), or set HF_HUB_CACHE to a folder on another disk.',
  507,
);
export const hubFolderUnusable = defineError(
  'KVASIR_HUB_FOLDER_UNUSABLE',
  'The folder {folder} for downloaded models cannot be used: {reason}. Correct its permissions, or set HF_HUB_CACHE to another folder.',
  500,
);
export const modelNotDownloaded = defineError(
  'KVASIR_MODEL_NOT_DOWNLOADED',
  'The model {name} is not downloaded. `kvasir list` shows the models that are.',
  404,
);
