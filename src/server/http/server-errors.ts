import { byName } from '../../base/by-name.ts';
import { defineError, KvasirError } from '../../base/errors.ts';
import { promptTooLong, type tooManyTokens } from '../../core/errors.ts';

/** The fields of an error for a request that has too many tokens. */
export type TokensOfRequest = Parameters<typeof tooManyTokens>[0];

/** Errors that only requests over HTTP can cause. The errors of any caller are in `core/errors.ts`. */
export const fieldMissing = defineError('KVASIR_FIELD_MISSING', '`{parameter}` is required: {expected}.', 400);
export const fieldUnknown = defineError('KVASIR_FIELD_UNKNOWN', 'There is no field `{parameter}`.{hint}', 400);
export const fieldNotSupported = defineError(
  'KVASIR_FIELD_NOT_SUPPORTED',
  '`{parameter}` is not supported by this server{detail}. Remove the field.',
  400,
);
export const bodyNotUtf8 = defineError('KVASIR_BODY_NOT_UTF8', 'The body is not valid UTF-8.', 400);
export const bodyNotJson = defineError('KVASIR_BODY_NOT_JSON', 'The body is not valid JSON: {reason}.', 400);
export const jsonOverLimit = defineError(
  'KVASIR_JSON_OVER_LIMIT',
  'The JSON of the body has more than {limit} {what}; the limit was exceeded in `{parameter}`. Send a smaller request.',
  400,
);
/** The status is nginx's, and appears only in the log: the client does not read the answer. */
export const clientGone = defineError(
  'KVASIR_CLIENT_GONE',
  'The client closed the connection before its request was received completely.',
  499,
);
export const bodyNotObject = defineError(
  'KVASIR_BODY_NOT_OBJECT',
  'The body must be a JSON object, got {actual}.',
  400,
);
export const bodyTooLarge = defineError(
  'KVASIR_BODY_TOO_LARGE',
  'The body is larger than {limitBytes} bytes. Send less, or start the server with a larger --max-body-size.',
  413,
);
export const bodyTooSlow = defineError(
  'KVASIR_BODY_TOO_SLOW',
  'The body was received too slowly: less than {leastBytes} bytes in {seconds} s. Send it faster, or start the server with a longer --client-timeout.',
  408,
);
export const requestMemoryFull = defineError(
  'KVASIR_REQUEST_MEMORY_FULL',
  'The server has {limitBytes} bytes for the bodies of requests, and others use them. Send the request again later.',
  503,
  { retryable: true },
);
export const requestOverMemory = defineError(
  'KVASIR_REQUEST_OVER_MEMORY',
  'The answer may need {bytes} bytes of memory; the limit is {limitBytes} (--max-request-memory). Ask for fewer completions, fewer tokens or fewer logprobs.',
  400,
);
export const contentEncodingNotSupported = defineError(
  'KVASIR_CONTENT_ENCODING_NOT_SUPPORTED',
  'The content encoding {actual} is not supported. Send the body as it is, without the header `Content-Encoding`.',
  415,
);
export const mediaTypeNotSupported = defineError(
  'KVASIR_MEDIA_TYPE_NOT_SUPPORTED',
  'The content type must be application/json, got {actual}. Send the header `Content-Type: application/json`.',
  415,
);
export const unauthorized = defineError(
  'KVASIR_UNAUTHORIZED',
  '{problem} Send the header `Authorization: Bearer <key>` with the key that the server was started with.',
  401,
);
export const adminOnly = defineError(
  'KVASIR_ADMIN_ONLY',
  '{method} {path} concerns the requests of all API keys, and this key is only for its own. Use a key that has `admin: true` in --api-key-limits.',
  403,
);
export const hostNotAllowed = defineError(
  'KVASIR_HOST_NOT_ALLOWED',
  'This server has no API key, so it answers only to local names and IP addresses. `{host}` is another name. Start it with --allowed-hosts {host}, or with --api-key.',
  403,
);
export const originNotAllowed = defineError(
  'KVASIR_ORIGIN_NOT_ALLOWED',
  'A web page of {origin} may not use this server. Start it with --allowed-origins and the origin of the page.',
  403,
);
export const runtimeLoraOff = defineError(
  'KVASIR_RUNTIME_LORA_OFF',
  'This server does not load or unload LoRA adapters at run time. Start it with --enable-runtime-lora and --api-key.',
  403,
);
export const modelNotFound = defineError(
  'KVASIR_MODEL_NOT_FOUND',
  'The model `{requested}` does not exist. This server serves `{served}`.',
  404,
);
export const routeNotFound = defineError(
  'KVASIR_ROUTE_NOT_FOUND',
  'There is no endpoint {method} {path}. docs/api.md in the package lists the endpoints, and GET / is a page to try them.',
  404,
);
export const pullOff = defineError(
  'KVASIR_PULL_OFF',
  'This server does not download `{model}`. Start it with --hub-models any, and pull a name such as hf.co/owner/name:Q8_0; or download the model with `kvasir pull`, and serve it.',
  403,
);
export const modelsReadOnly = defineError(
  'KVASIR_MODELS_READ_ONLY',
  '{path} has no effect here: this server does not make, copy, upload or delete models. It serves GGUF files; `kvasir pull` and `kvasir rm` download and remove them.',
  403,
);
export const faultInjectionOff = defineError(
  'KVASIR_FAULT_INJECTION_OFF',
  'This server does not lose blocks on demand. Start it with --enable-fault-injection.',
  403,
);
export const methodNotAllowed = defineError(
  'KVASIR_METHOD_NOT_ALLOWED',
  '{path} does not support {method}. Use {allowed}.',
  405,
);
export const modelLoading = defineError(
  'KVASIR_MODEL_LOADING',
  'The model is not loaded yet. {progress} Send the request again in {retryAfterSeconds} s.',
  503,
  { retryable: true },
);
export const tooManyChoices = defineError(
  'KVASIR_TOO_MANY_CHOICES',
  'The request asks for {asked}; the limit is {limit} in one request. Send several requests.',
  400,
);
export const keyLimitReached = defineError(
  'KVASIR_KEY_LIMIT_REACHED',
  'The API key `{name}` may have {maxRunning} running and {maxWaiting} waiting completions, and has no room for this request. Send the request again when others have ended.',
  429,
  { retryable: true },
);
export const tlsUnusable = defineError(
  'KVASIR_TLS_UNUSABLE',
  'TLS cannot use {files}: {reason}. Give a certificate with --ssl-certfile and its key, without a password, with --ssl-keyfile.',
  500,
);
/** The codes of OpenAI's API, by which its clients distinguish errors. Other codes are sent unchanged. */
const openAiCodes: Readonly<Record<string, string>> = byName({
  KVASIR_PROMPT_TOO_LONG: 'context_length_exceeded',
  KVASIR_MODEL_NOT_FOUND: 'model_not_found',
  KVASIR_MODEL_UNKNOWN: 'model_not_found',
  KVASIR_UNAUTHORIZED: 'invalid_api_key',
  KVASIR_FIELD_UNKNOWN: 'unknown_parameter',
  KVASIR_FIELD_MISSING: 'missing_required_parameter',
  KVASIR_FIELD_NOT_SUPPORTED: 'unsupported_parameter',
  KVASIR_INVALID_PARAMETER: 'invalid_value',
  KVASIR_JSON_OVER_LIMIT: 'invalid_value',
  KVASIR_PREVIOUS_RESPONSE_NOT_FOUND: 'previous_response_not_found',
});

/** Errors of the model: clients need the message, and a stack says nothing. */
const modelErrors: ReadonlySet<string> = new Set([
  'KVASIR_BROKEN_LOGITS',
  'KVASIR_BROKEN_EMBEDDING',
  'KVASIR_MODEL_OVER_MEMORY',
]);

/** Seconds that a client should wait before it repeats a request that the server had no room for. */
const RETRY_AFTER_SECONDS = 1;

export interface OpenAiErrorBody {
  readonly error: {
    readonly message: string;
    readonly type: string;
    readonly param: string | null;
    readonly code: string | null;
  };
}

export interface ErrorAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: OpenAiErrorBody;
  /** Set if the request has too many tokens: APIs have their own words for it, which agents know. */
  readonly tooLong?: TokensOfRequest;
  /** A bug of the server or a problem of its machine: the log gets the stack, the client gets no details. */
  readonly internal: boolean;
}

/**
 * The HTTP answer for an error. Internal errors for which no retry helps have no details in the answer. Their messages
 * can contain paths, addresses or a stack, which belong in the log.
 */
export function errorAnswer(error: unknown): ErrorAnswer {
  const known = error instanceof KvasirError ? error : undefined;
  const isOfModel = known !== undefined && modelErrors.has(known.code);
  if (known === undefined || (known.httpStatus >= 500 && !known.retryable && !isOfModel)) {
    const body = errorBody('Internal server error.', 'server_error', null, known?.code ?? 'internal_error');
    return { status: known?.httpStatus ?? 500, headers: {}, body, internal: true };
  }
  const { code, httpStatus, fields } = known;
  const type = httpStatus >= 500 ? 'server_error' : httpStatus === 429 ? 'rate_limit_error' : 'invalid_request_error';
  const parameter = typeof fields.parameter === 'string' ? wireName(fields.parameter) : null;
  return {
    status: httpStatus,
    headers: answerHeaders(known),
    body: errorBody(withWireNames(known), type, parameter, openAiCodes[code] ?? code),
    ...(code === promptTooLong.definition.code ? { tooLong: fields as unknown as TokensOfRequest } : {}),
    internal: httpStatus === 500 && !isOfModel,
  };
}

function errorBody(message: string, type: string, param: string | null, code: string): OpenAiErrorBody {
  return { error: { message, type, param, code } };
}

function answerHeaders(error: KvasirError): Record<string, string> {
  if (error.retryable && (error.httpStatus === 429 || error.httpStatus === 503)) {
    return { 'retry-after': String(error.fields.retryAfterSeconds ?? RETRY_AFTER_SECONDS) };
  }
  if (error.httpStatus === 401) return { 'www-authenticate': 'Bearer' };
  if (error.httpStatus === 405) return { allow: String(error.fields.allowed) };
  return {};
}

/** The engine's name is `topK`, the API's name is `top_k`. */
function wireName(parameter: string): string {
  return parameter.replace(/(?<=[a-z])[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

function withWireNames(error: KvasirError): string {
  const parameter = error.fields.parameter;
  const message = error.message.replace(/\bmaxTokens\b/g, 'max_tokens');
  if (typeof parameter !== 'string') return message;
  return message.replaceAll(`\`${parameter}\``, `\`${wireName(parameter)}\``);
}
export const attachNeedsKey = defineError(
  'KVASIR_ATTACH_NEEDS_KEY',
  'Tiers are attached only on a server with an API key or an admin key, because the server then writes to what the client names. Start it with --admin-key.',
  403,
);
