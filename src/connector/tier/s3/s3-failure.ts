/** What a failed call says about the bucket. */
export type S3FailureKind =
  /** The object does not exist. */
  | 'missing'
  /** The object ends before the range. */
  | 'outOfRange'
  /** The server has no memory left for the object. */
  | 'full'
  /** The server refuses the bucket, the credentials or the request. Trying again does not help. */
  | 'refused'
  /** No answer, an interrupted answer, or an error of the server. */
  | 'failed';

/** A call that failed, without the SDK's error: that has headers and requests, and logs must have no secrets. */
export class S3Failure extends Error {
  override readonly name = 'S3Failure';
  readonly kind: S3FailureKind;
  readonly code: string;

  constructor(kind: S3FailureKind, code: string, message: string) {
    super(message);
    this.kind = kind;
    this.code = code;
  }
}

const codesOfFull = new Set([
  'InsufficientStorage',
  'QuotaExceeded',
  'XMinioStorageFull',
  'XMinioAdminBucketQuotaExceeded',
  'NoSpaceLeftOnDevice',
]);
/** Statuses below 500 that a later call may not get. */
const temporary = new Set([408, 425, 429]);
const messageLengthMax = 300;

interface SdkError {
  readonly name?: unknown;
  readonly code?: unknown;
  readonly message?: unknown;
  readonly $metadata?: { readonly httpStatusCode?: number };
}

export function failureOf(error: unknown): S3Failure {
  if (error instanceof S3Failure) return error;
  const { name, code, message, $metadata } = (typeof error === 'object' && error !== null ? error : {}) as SdkError;
  const status = $metadata?.httpStatusCode;
  const called = textOf(status === undefined ? (code ?? name) : name) || 'Error';
  const reason = [status === undefined ? called : `${called} (HTTP ${status})`, textOf(message)];
  return new S3Failure(kindOf(called, status), called, reason.filter((text) => text !== '').join(': '));
}

function kindOf(code: string, status: number | undefined): S3FailureKind {
  if (code === 'NoSuchKey' || code === 'NotFound') return 'missing';
  if (code === 'InvalidRange' || status === 416) return 'outOfRange';
  if (codesOfFull.has(code) || status === 507) return 'full';
  if (code === 'CredentialsProviderError') return 'refused';
  if (status === undefined) return 'failed';
  return status >= 300 && status < 500 && !temporary.has(status) ? 'refused' : 'failed';
}

/** One line of bounded length, because the text comes from the server. */
function textOf(value: unknown): string {
  if (typeof value !== 'string') return '';
  const line = value.replace(/\s+/g, ' ').trim();
  return line.length > messageLengthMax ? `${line.slice(0, messageLengthMax)}...` : line;
}
