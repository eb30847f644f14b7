import type { Readable } from 'node:stream';
import type * as Sdk from '@aws-sdk/client-s3';
import { AssertionError } from '../../../base/assert.ts';
import { withDeadline } from '../../../base/deadlines.ts';
import type { Timers } from '../../../base/timers.ts';
import { s3ClientMissing } from '../../errors.ts';
import { limitAnswer } from './answer-limit.ts';
import { failureOf, S3Failure } from './s3-failure.ts';

export interface S3Credentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string;
}

export interface S3BucketOptions {
  readonly bucket: string;
  /** Absent: Amazon's for the region, or `AWS_ENDPOINT_URL_S3` or `AWS_ENDPOINT_URL`. */
  readonly endpoint?: string;
  /** Absent: `AWS_REGION`, or the profile's, or `us-east-1` with an endpoint. */
  readonly region?: string;
  /** `http://host/bucket/object`, not `http://bucket.host/object`. Default: true with an endpoint. */
  readonly forcePathStyle?: boolean;
  /** Absent: from the usual places of AWS (environment, profile, role of the machine). */
  readonly credentials?: S3Credentials;
  readonly requestTimeoutMs: number;
  readonly socketsMax: number;
  readonly timers: Timers;
  readonly wallNowMs: () => number;
  /** For tests. */
  readonly importSdk?: () => Promise<typeof Sdk>;
}

export interface ObjectPage {
  readonly objects: readonly { readonly name: string; readonly bytes: number }[];
  /** For the next page; undefined at the last page. */
  readonly continuation: string | undefined;
}

/** Receives the bytes of an object or of a part of it. */
export interface ByteSink {
  /** Called once, before the bytes. */
  begin(objectBytes: number): void;
  write(chunk: Uint8Array): void;
}

export interface ByteRange {
  readonly first: number;
  readonly end: number;
}

/** A test compares them with package.json. */
export const sdkPackage = '@aws-sdk/client-s3';
export const sdkVersion = '3.1169.0';

const connectTimeoutMs = 5_000;
/** Of one page. Look-ups wait for it, and a hung connection must not delay them as long as a slow transfer may take. */
const listTimeoutMs = 10_000;
const offsetMinMs = 3_000;
/**
 * Either the server had closed the kept connection, so nothing of the answer has arrived. Or the clocks differ by more
 * than a signature allows, and the client now knows the server's.
 */
const repeatable = new Set(['ECONNRESET', 'EPIPE', 'RequestTimeTooSkewed']);

/**
 * The calls on one bucket. Each has a deadline, runs once, and rejects with an `S3Failure` or with the reason of the
 * signal. Payloads are neither hashed nor signed: stored blocks have their own checksums, and a connection that needs
 * protection from changes is TLS.
 */
export class S3Bucket {
  readonly #sdk: typeof Sdk;
  readonly #client: Sdk.S3Client;
  readonly #options: S3BucketOptions;
  #clockOffsetMs = 0;

  private constructor(sdk: typeof Sdk, options: S3BucketOptions) {
    this.#sdk = sdk;
    this.#options = options;
    this.#client = newClient(sdk, options);
    const { middlewareStack } = this.#client;
    middlewareStack.add(
      (next) => (args) => {
        // S3 accepts this text in place of the payload's sha256, also over http. The request itself is signed.
        (args.request as { headers: Record<string, string> }).headers['x-amz-content-sha256'] = 'UNSIGNED-PAYLOAD';
        return next(args);
      },
      { step: 'build', name: 'unsignedPayload' },
    );
    middlewareStack.add(
      (next, { commandName }) =>
        async (args) => {
          const result = await next(args);
          this.#noteAnswer(result.response);
          // The bytes of a block are not collected: `pour` stops after the range.
          limitAnswer(result.response, commandName);
          return result;
        },
      { step: 'deserialize', name: 'noteAnswer', priority: 'low' },
    );
  }

  /** Loads the SDK. Rejects with `s3ClientMissing`, or with an `S3Failure` if there is no region. */
  static async open(options: S3BucketOptions): Promise<S3Bucket> {
    const sdk = await importSdk(options.importSdk ?? (() => import('@aws-sdk/client-s3')));
    const bucket = new S3Bucket(sdk, options);
    try {
      await bucket.#client.config.region();
    } catch (error) {
      bucket.close();
      throw new S3Failure('refused', 'RegionMissing', error instanceof Error ? error.message : String(error));
    }
    return bucket;
  }

  /** The difference of the server's clock from this machine's; 0 if it is less than three seconds. */
  get clockOffsetMs(): number {
    return this.#clockOffsetMs;
  }

  /** Objects in the order of their names. */
  list(
    where: { readonly prefix: string; readonly after: string; readonly continuation: string | undefined },
    signal: AbortSignal,
  ): Promise<ObjectPage> {
    const timeoutMs = Math.min(this.#options.requestTimeoutMs, listTimeoutMs);
    return this.#call(signal, timeoutMs, async (abortSignal) => {
      const command = new this.#sdk.ListObjectsV2Command({
        Bucket: this.#options.bucket,
        Prefix: where.prefix,
        ...(where.continuation === undefined ? { StartAfter: where.after } : { ContinuationToken: where.continuation }),
      });
      const {
        Contents = [],
        IsTruncated,
        NextContinuationToken,
      } = await sendTwice(() => this.#client.send(command, { abortSignal }), abortSignal);
      // For example the page of a proxy, which must not look like an empty bucket.
      if (IsTruncated === undefined) throw new S3Failure('failed', 'NotAListing', 'the answer is not a listing');
      return {
        // Sizes come from the server. No object of a tier has another.
        objects: Contents.filter(({ Size }) => Number.isSafeInteger(Size) && Size! >= 0).map(
          ({ Key = '', Size = 0 }) => ({
            name: Key,
            bytes: Size,
          }),
        ),
        continuation: IsTruncated ? NextContinuationToken : undefined,
      };
    });
  }

  /** Writes the bytes of the object, or of the part in `range` that exists, to the sink. */
  get(name: string, range: ByteRange | undefined, sink: ByteSink, signal: AbortSignal): Promise<void> {
    return this.#call(signal, this.#options.requestTimeoutMs, async (abortSignal) => {
      const command = new this.#sdk.GetObjectCommand({
        Bucket: this.#options.bucket,
        Key: name,
        ...(range && { Range: `bytes=${range.first}-${range.end - 1}` }),
      });
      const answer = await sendTwice(() => this.#client.send(command, { abortSignal }), abortSignal);
      const body = answer.Body as Readable;
      try {
        sink.begin(objectBytesOf(answer, range));
        await pour(body, sink, range === undefined ? Number.POSITIVE_INFINITY : range.end - range.first);
      } finally {
        body.destroy();
      }
    });
  }

  put(name: string, body: Uint8Array, signal: AbortSignal): Promise<void> {
    return this.#call(signal, this.#options.requestTimeoutMs, async (abortSignal) => {
      const command = new this.#sdk.PutObjectCommand({ Bucket: this.#options.bucket, Key: name, Body: body });
      await sendTwice(() => this.#client.send(command, { abortSignal }), abortSignal);
    });
  }

  /** No effect if the object does not exist. */
  async delete(name: string, signal: AbortSignal): Promise<void> {
    try {
      await this.#call(signal, this.#options.requestTimeoutMs, async (abortSignal) => {
        const command = new this.#sdk.DeleteObjectCommand({ Bucket: this.#options.bucket, Key: name });
        await sendTwice(() => this.#client.send(command, { abortSignal }), abortSignal);
      });
    } catch (error) {
      if (!(error instanceof S3Failure) || error.kind !== 'missing') throw error;
    }
  }

  /** Closes all connections. */
  close(): void {
    this.#client.destroy();
  }

  async #call<T>(signal: AbortSignal, timeoutMs: number, call: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const late = (message: string) => new S3Failure('failed', 'TimeoutError', message);
    return withDeadline({ timers: this.#options.timers, timeoutMs, late, signal }, async (abortSignal) => {
      try {
        return await call(abortSignal);
      } catch (error) {
        throw error instanceof AssertionError ? error : failureOf(error);
      }
    });
  }

  #noteAnswer(response: unknown): void {
    const { headers, body } = response as { headers?: Record<string, string>; body?: Readable };
    const date = Date.parse(headers?.date ?? '');
    // The header has whole seconds, so a small difference says nothing.
    const offsetMs = date - this.#options.wallNowMs();
    if (!Number.isNaN(date)) this.#clockOffsetMs = Math.abs(offsetMs) < offsetMinMs ? 0 : offsetMs;
    // An abort can end the answer before `pour` listens to it.
    body?.on?.('error', () => undefined);
  }
}

async function importSdk(load: () => Promise<typeof Sdk>): Promise<typeof Sdk> {
  try {
    return await load();
  } catch (error) {
    if ((error as { code?: unknown }).code !== 'ERR_MODULE_NOT_FOUND') throw error;
    throw s3ClientMissing({ package: `${sdkPackage}@${sdkVersion}` });
  }
}

function newClient(sdk: typeof Sdk, options: S3BucketOptions): Sdk.S3Client {
  const { AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION, AWS_DEFAULT_REGION } = process.env;
  const endpoint = options.endpoint ?? (AWS_ENDPOINT_URL_S3 || AWS_ENDPOINT_URL || undefined);
  const region = options.region ?? (AWS_REGION || AWS_DEFAULT_REGION || (endpoint && 'us-east-1'));
  const agent = { keepAlive: true, maxSockets: options.socketsMax, scheduling: 'lifo' } as const;
  return withoutVersionWarning(
    () =>
      new sdk.S3Client({
        ...(endpoint && { endpoint }),
        ...(region && { region }),
        ...(options.credentials && { credentials: options.credentials }),
        forcePathStyle: options.forcePathStyle ?? endpoint !== undefined,
        maxAttempts: 1,
        // The payload is checked by the header of each block.
        requestChecksumCalculation: 'WHEN_REQUIRED',
        responseChecksumValidation: 'WHEN_REQUIRED',
        // The wait for `100 Continue` costs a round trip, and a socket of its own.
        expectContinueHeader: false,
        requestHandler: {
          httpAgent: agent,
          httpsAgent: agent,
          connectionTimeout: Math.min(connectTimeoutMs, options.requestTimeoutMs),
          logger: silent,
        },
      }),
  );
}

/** The SDK warns on Node 20 that later versions of it need Node 22. This version is pinned. */
function withoutVersionWarning<T>(make: () => T): T {
  const name = 'AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED';
  const before = process.env[name];
  process.env[name] = 'true';
  try {
    return make();
  } finally {
    if (before === undefined) delete process.env[name];
    else process.env[name] = before;
  }
}

const nothing = (): void => undefined;
const silent = { trace: nothing, debug: nothing, info: nothing, warn: nothing, error: nothing };

/** All our calls may be repeated. */
async function sendTwice<T>(send: () => Promise<T>, signal: AbortSignal): Promise<T> {
  try {
    return await send();
  } catch (error) {
    const { code, name } = error as { code?: string; name?: string };
    if (signal.aborted || !repeatable.has(code ?? name ?? '')) throw error;
    return send();
  }
}

function objectBytesOf(
  { ContentRange, ContentLength }: Sdk.GetObjectCommandOutput,
  range: ByteRange | undefined,
): number {
  const match = /^bytes (\d+)-\d+\/(\d+)$/.exec(ContentRange ?? '');
  if (match === null) {
    // Without a Content-Range the answer is the whole object.
    if (range === undefined || range.first === 0) {
      if (ContentLength !== undefined) return ContentLength;
      throw new S3Failure('failed', 'LengthMissing', 'the answer does not say how long the object is');
    }
    throw new S3Failure('failed', 'RangeIgnored', 'the server ignores the Range header');
  }
  if (Number(match[1]) !== (range?.first ?? 0))
    throw new S3Failure('failed', 'OtherRange', `another range: ${ContentRange}`);
  return Number(match[2]);
}

/** Stops after `wanted` bytes. Rejects if the answer is interrupted; after that, nothing is written. */
function pour(body: Readable, sink: ByteSink, wanted: number): Promise<void> {
  return new Promise((resolve, reject) => {
    let left = wanted;
    const stop = (error?: unknown): void => {
      body.removeListener('data', onData);
      if (error === undefined) resolve();
      else reject(error);
    };
    const onData = (chunk: Uint8Array): void => {
      // After the last byte, `end` follows, unless the server sends more than the range.
      if (left === 0) {
        stop();
        return;
      }
      try {
        sink.write(chunk.length > left ? chunk.subarray(0, left) : chunk);
        left -= Math.min(left, chunk.length);
      } catch (error) {
        stop(error);
      }
    };
    body.once('end', () => stop());
    body.once('error', stop);
    body.once('close', () => stop(new S3Failure('failed', 'Interrupted', 'the connection closed during the answer')));
    body.on('data', onData);
  });
}
