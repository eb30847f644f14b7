import { type Readable, Transform } from 'node:stream';
import { S3Failure } from './s3-failure.ts';

/** A page has at most 1000 names of at most 1024 bytes. */
const listingBytesMax = 4 * 1024 ** 2;
/** Of errors, and of answers to stores and deletions. */
const otherBytesMax = 64 * 1024;

interface Answer {
  readonly statusCode?: number;
  body?: unknown;
}

/**
 * The SDK collects these answers in memory before it reads them, so a broken server could fill the memory of the process. An
 * answer that is too long is an error, and its connection is closed.
 */
export function limitAnswer(response: unknown, commandName: string | undefined): void {
  const answer = response as Answer;
  const isSuccess = answer.statusCode !== undefined && answer.statusCode < 300;
  if (isSuccess && commandName === 'GetObjectCommand') return;
  const body = answer.body as Readable | undefined;
  if (typeof body?.pipe !== 'function') return;
  const bytesMax = isSuccess && commandName === 'ListObjectsV2Command' ? listingBytesMax : otherBytesMax;
  answer.body = limited(body, bytesMax);
}

function limited(body: Readable, bytesMax: number): Readable {
  let received = 0;
  const limit = new Transform({
    transform(chunk: Uint8Array, _encoding, done) {
      received += chunk.length;
      if (received <= bytesMax) {
        done(null, chunk);
        return;
      }
      done(new S3Failure('failed', 'AnswerTooLong', `the answer has more than ${bytesMax / 1024} KiB`));
    },
  });
  limit.on('error', () => body.destroy());
  body.on('error', (error) => limit.destroy(error));
  body.on('close', () => {
    if (!body.readableEnded)
      limit.destroy(new S3Failure('failed', 'Interrupted', 'the connection closed during the answer'));
  });
  return body.pipe(limit);
}
