import type { FastifyRequest } from 'fastify';
import { assertDefined } from '../../base/assert.ts';
import type { RequestMemory } from './request-memory.ts';
import { bodyNotJson, bodyTooLarge, bodyTooSlow, requestMemoryFull } from './server-errors.ts';

export interface BodyIntakeOptions {
  readonly memory: RequestMemory;
  readonly bodyMaxBytes: number;
  readonly clientTimeoutMs: number;
}

/** The bytes of a body, which Fastify or a middleware gives. */
export interface BodyPayload extends NodeJS.ReadableStream {
  /** The length before a middleware decoded the body. */
  readonly receivedEncodedLength?: number | undefined;
}

/** Bytes for each second that a client has. */
const LEAST_SPEED = 2048;

/** A body that is not received completely. */
interface OpenBody {
  /** The address of the client. */
  readonly from: string;
  readonly buffer: BodyBytes;
  refuse(error: Error): void;
}

/**
 * Reads the bodies of requests. Bodies in progress share a limit. Beyond it, the client whose bodies have most bytes loses the one that
 * has waited longest for bytes: clients that send half of their bodies lose them to those that send all. A client that is slower than
 * `LEAST_SPEED` loses its body too.
 */
export class BodyIntake {
  readonly #options: BodyIntakeOptions;
  readonly #maxBytes: number;
  /** The one that got bytes last is the last. */
  readonly #open = new Set<OpenBody>();
  /** Memory of the bodies in `#open`. */
  #bytes = 0;

  constructor(options: BodyIntakeOptions) {
    this.#options = options;
    this.#maxBytes = Math.max(options.memory.intakeMaxBytes, 2 * options.bodyMaxBytes);
  }

  /** @throws bodyTooLarge, bodyTooSlow, requestMemoryFull, bodyNotJson, or the error of the connection */
  read(request: FastifyRequest, payload: BodyPayload): Promise<Buffer> {
    const { bodyMaxBytes, clientTimeoutMs } = this.#options;
    const expected = Number(request.headers['content-length']);
    if (expected > bodyMaxBytes) throw bodyTooLarge({ limitBytes: bodyMaxBytes });
    return new Promise((resolve, reject) => {
      const buffer = new BodyBytes();
      const body: OpenBody = { from: request.ip, buffer, refuse: (error) => end(error) };
      const end = (error?: Error): void => {
        clearInterval(speed);
        for (const [event, listener] of Object.entries(listeners)) payload.off(event, listener);
        if (!this.#open.delete(body)) return;
        this.#change(-buffer.capacity);
        if (error === undefined) resolve(buffer.join());
        else reject(error);
      };
      const listeners = {
        data: (piece: Buffer | string) => {
          const chunk = typeof piece === 'string' ? Buffer.from(piece) : piece;
          if (buffer.length + chunk.length > bodyMaxBytes) end(bodyTooLarge({ limitBytes: bodyMaxBytes }));
          else this.#receive(body, chunk);
        },
        end: () => {
          const isWhole = Number.isNaN(expected) || (payload.receivedEncodedLength || buffer.length) === expected;
          end(isWhole ? undefined : bodyNotJson({ reason: 'its length differs from the Content-Length header' }));
        },
        error: end,
      };
      let before = 0;
      const leastBytes = Math.floor((LEAST_SPEED * clientTimeoutMs) / 1000);
      const speed = setInterval(() => {
        if (buffer.length - before < leastBytes) end(bodyTooSlow({ leastBytes, seconds: clientTimeoutMs / 1000 }));
        before = buffer.length;
      }, clientTimeoutMs);
      this.#open.add(body);
      for (const [event, listener] of Object.entries(listeners)) payload.on(event, listener);
      payload.resume();
    });
  }

  #receive(body: OpenBody, chunk: Buffer): void {
    const { buffer } = body;
    this.#open.delete(body);
    this.#open.add(body);
    const before = buffer.capacity;
    buffer.push(chunk);
    this.#change(buffer.capacity - before);
    while (this.#bytes > this.#maxBytes) this.#leastWanted().refuse(requestMemoryFull({ limitBytes: this.#maxBytes }));
  }

  #change(byBytes: number): void {
    this.#bytes += byBytes;
    this.#options.memory.changeIntake(byBytes);
  }

  /** Of the client whose bodies have most bytes, the body whose last bytes came first. */
  #leastWanted(): OpenBody {
    const bytesOf = new Map<string, number>();
    for (const { from, buffer } of this.#open) bytesOf.set(from, (bytesOf.get(from) ?? 0) + buffer.capacity);
    const most = Math.max(...bytesOf.values());
    const bodies = Array.from(this.#open).filter(({ from }) => bytesOf.get(from) === most);
    return assertDefined(
      bodies.find(({ buffer }) => buffer.capacity > 0),
      'memory of a body that is not open',
    );
  }
}

const BLOCK_BYTES = 4096;

/** The bytes of a body. Small chunks are copied into blocks: kept one by one, a chunk of one byte would need 200. */
class BodyBytes {
  readonly #chunks: Buffer[] = [];
  /** Filled with small chunks; the next large chunk or block follows it. */
  #block: Buffer | undefined;
  #inBlock = 0;
  #length = 0;
  #capacity = 0;

  get length(): number {
    return this.#length;
  }

  /** Memory, about. */
  get capacity(): number {
    return this.#capacity;
  }

  push(chunk: Buffer): void {
    this.#length += chunk.length;
    if (chunk.length < BLOCK_BYTES / 2) {
      this.#copy(chunk);
      return;
    }
    this.#closeBlock();
    this.#chunks.push(chunk);
    this.#capacity += chunk.length;
  }

  join(): Buffer {
    this.#closeBlock();
    return Buffer.concat(this.#chunks, this.#length);
  }

  #copy(chunk: Buffer): void {
    if (this.#block !== undefined && this.#inBlock + chunk.length > BLOCK_BYTES) this.#closeBlock();
    if (this.#block === undefined) {
      this.#block = Buffer.allocUnsafeSlow(BLOCK_BYTES);
      this.#capacity += BLOCK_BYTES;
    }
    this.#inBlock += chunk.copy(this.#block, this.#inBlock);
  }

  #closeBlock(): void {
    if (this.#block !== undefined) this.#chunks.push(this.#block.subarray(0, this.#inBlock));
    this.#block = undefined;
    this.#inBlock = 0;
  }
}
