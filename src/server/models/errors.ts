import { defineError } from '../../base/errors.ts';

/** Errors of a server with several models. */
export const modelUnknown = defineError(
  'KVASIR_MODEL_UNKNOWN',
  'The model `{requested}` does not exist. GET /v1/models lists the models of this server.',
  404,
);
export const modelNotStarted = defineError(
  'KVASIR_MODEL_NOT_STARTED',
  "The model `{model}` could not be loaded ({code}). The server's log has the reason. The next request tries again.",
  503,
  { retryable: true },
);
export const modelOverMemory = defineError(
  'KVASIR_MODEL_OVER_MEMORY',
  'The model `{model}` needs {bytes} bytes of memory; the limit of all models is {limitBytes} (--models-memory). Start the server with a larger limit, or with a smaller --kv-cache-memory or --max-model-len.',
  503,
);
export const modelProcessEnded = defineError(
  'KVASIR_MODEL_PROCESS_ENDED',
  'The process of the model `{model}` ended before the answer. Send the request again: the model is loaded again.',
  503,
  { retryable: true },
);
export const modelNotLoaded = defineError(
  'KVASIR_MODEL_NOT_LOADED',
  'The model `{model}` is not loaded. Send it a request, or POST /models/load.',
  409,
);
export const modelPaused = defineError(
  'KVASIR_MODEL_PAUSED',
  'The model `{model}` failed three times within a minute of work, at last with {code}. It can be loaded again in {retryAfterSeconds} s, or at once with POST /models/load.',
  503,
  { retryable: true },
);
export const modelSilent = defineError(
  'KVASIR_MODEL_SILENT',
  'The process of the model `{model}` does not answer now. Send the request again: a process that hangs is replaced.',
  503,
  { retryable: true },
);
