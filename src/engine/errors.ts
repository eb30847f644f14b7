import { defineError } from '../base/errors.ts';

/** Errors of the engine as a whole. */
export const engineBroken = defineError(
  'KVASIR_ENGINE_BROKEN',
  'The engine stopped after an error: {reason}. Start the engine again.',
  503,
);
export const poolTooSmall = defineError(
  'KVASIR_POOL_TOO_SMALL',
  'The KV pool has {blockCount} blocks, too few for one request of {maxModelLen} tokens. Start with a larger --kv-cache-memory or a smaller --max-model-len.',
  500,
);
export const memoryTooSmall = defineError(
  'KVASIR_MEMORY_TOO_SMALL',
  'The model {model} needs {needed} of memory ({parts}), and {available}. Use a smaller model, a smaller --kv-cache-memory or --max-model-len, or a machine with more memory; `kvasir size` shows what fits. --skip-memory-check tries it anyway.',
  500,
);
export const modelLenTooSmall = defineError(
  'KVASIR_MODEL_LEN_TOO_SMALL',
  'The option maxModelLen is {maxModelLen}. It must be a whole number of at least 2: one token of the prompt and one of the output.',
  500,
);
export const gpuLayersInvalid = defineError(
  'KVASIR_GPU_LAYERS_INVALID',
  'The option gpuLayers is {found}. It must be a whole number of at least 0, "all" or "auto".',
  400,
);
export const gpuLayersImpossible = defineError(
  'KVASIR_GPU_LAYERS_IMPOSSIBLE',
  '--gpu-layers {layers} is not possible: {problem}.',
  400,
);
export const chatPromptEmpty = defineError(
  'KVASIR_CHAT_PROMPT_EMPTY',
  'The chat template rendered an empty text for these messages. Start with --chat-template and a template that shows them.',
  400,
);
export const chatTemplateMissing = defineError(
  'KVASIR_CHAT_TEMPLATE_MISSING',
  'The model {model} has no chat template. Send a completion request, or start with --chat-template.',
  400,
);
export const unreadOverLimit = defineError(
  'KVASIR_UNREAD_OVER_LIMIT',
  'More than {limitBytes} bytes of the answer waited for their reader, so the request was ended. Read the stream faster, or ask for less.',
  408,
);
export const poolingMissing = defineError(
  'KVASIR_POOLING_MISSING',
  'The file of the model {model} does not say how tokens become one embedding. Start with --pooling mean, cls or last.',
  400,
);
export const noReranker = defineError(
  'KVASIR_NO_RERANKER',
  'The model {model} is no reranker: its file has neither cls.weight nor cls.output.weight. Start without --pooling rank, or with another model.',
  400,
);
export const noText = defineError(
  'KVASIR_NO_TEXT',
  'The model {model} makes {made} and no text. Use {endpoints}, or start with a model that generates text.',
  400,
);
export const scoresOnly = defineError(
  'KVASIR_SCORES_ONLY',
  'The model {model} is a reranker: it makes scores and no embeddings. Use /v1/rerank or /v1/score, or start with an embedding model.',
  400,
);
export const encoderKeepsNoKv = defineError(
  'KVASIR_ENCODER_KEEPS_NO_KV',
  'The model {model} makes embeddings or scores and keeps no KV, so {option} has no effect. Remove it.',
  400,
);
export const encoderModelLen = defineError(
  'KVASIR_ENCODER_MODEL_LEN',
  '--max-model-len is {maxModelLen}, but the model {model} takes texts of at most {contextLength} tokens. Use --max-model-len {contextLength} or less.',
  400,
);
export const brokenEmbedding = defineError(
  'KVASIR_BROKEN_EMBEDDING',
  'The model {model} computed {found} in the embedding of the text: its weights are corrupt, its file does not fit its architecture, or numbers overflow for this text. Download or convert the model again.',
  500,
);
export const draftVocabularyDiffers = defineError(
  'KVASIR_DRAFT_VOCABULARY_DIFFERS',
  'The draft model {path} has another vocabulary than {model}: token {token} differs. Use a draft model with the same vocabulary.',
  400,
);
export const adapterNotFound = defineError(
  'KVASIR_ADAPTER_NOT_FOUND',
  'There is no LoRA adapter `{name}`. Loaded: {loaded}.',
  404,
);
export const adapterExists = defineError(
  'KVASIR_ADAPTER_EXISTS',
  'The name `{name}` is that of the model or of a loaded LoRA adapter. Use another name, or unload the adapter first.',
  400,
);
export const tooManyAdapters = defineError(
  'KVASIR_TOO_MANY_ADAPTERS',
  'There are {limit} LoRA adapters, which is the limit. Unload one, or start with a larger --max-loras.',
  400,
);
/** Of fault injection: the blocks of a request can be lost only while it runs. */
export const requestEnded = defineError(
  'KVASIR_REQUEST_ENDED',
  'The request {request} does not run any more. Name a request that runs, or no request.',
  409,
);
/** A request ended with `finish_reason: error` without an error of its own, because the engine broke. */
export const generationFailed = defineError(
  'KVASIR_GENERATION_FAILED',
  'The engine failed while it computed this request. Send the request again.',
  503,
  { retryable: true },
);
export const tracingPackageMissing = defineError(
  'KVASIR_TRACING_PACKAGE_MISSING',
  'Traces need packages that Kvasir does not install: {reason}. Run: npm install {packages}',
  400,
);
