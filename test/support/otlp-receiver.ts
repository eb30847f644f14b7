import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { assertDefined } from '../../src/base/assert.ts';
import { type ProtobufField, protobufFields } from './protobuf-fields.ts';

export type OtlpValue = string | number | boolean | readonly OtlpValue[];
export type OtlpAttributes = Readonly<Record<string, OtlpValue>>;

export interface OtlpSpan {
  readonly name: string;
  readonly traceId: string;
  readonly spanId: string;
  /** Empty: a root. */
  readonly parentSpanId: string;
  readonly startMs: number;
  readonly endMs: number;
  readonly attributes: OtlpAttributes;
  readonly resource: OtlpAttributes;
}

/** A receiver of traces by OTLP over HTTP with Protocol Buffers. */
export class OtlpReceiver {
  readonly spans: OtlpSpan[] = [];
  /** The headers of each request. */
  readonly headers: IncomingHttpHeaders[] = [];
  readonly paths: string[] = [];
  /** The status of the answers. */
  status = 200;
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
    server.on('request', (request, response) => {
      void buffer(request).then((body) => {
        this.paths.push(request.url ?? '');
        this.headers.push(request.headers);
        if (this.status === 200) this.spans.push(...spansOf(body));
        response.writeHead(this.status, { 'content-type': 'application/x-protobuf' }).end();
      });
    });
  }

  static async start(port = 0): Promise<OtlpReceiver> {
    const server = createServer().listen(port, '127.0.0.1');
    await once(server, 'listening');
    return new OtlpReceiver(server);
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  async stop(): Promise<void> {
    this.#server.close();
    this.#server.closeAllConnections();
    await once(this.#server, 'close');
  }
}

const all = (message: Uint8Array, number: number): ProtobufField[] =>
  protobufFields(message).filter((field) => field.number === number);
const text = (message: Uint8Array, number: number): string =>
  Buffer.from(all(message, number)[0]?.bytes ?? []).toString();
const hex = (message: Uint8Array, number: number): string =>
  Buffer.from(all(message, number)[0]?.bytes ?? []).toString('hex');
const ms = (message: Uint8Array, number: number): number => Number(all(message, number)[0]!.integer) / 1e6;

function otlpValue(message: Uint8Array): OtlpValue {
  const { number, bytes, integer } = assertDefined(protobufFields(message)[0], 'a value has a field');
  if (number === 1) return Buffer.from(bytes).toString();
  if (number === 2) return integer === 1n;
  if (number === 4) return new DataView(bytes.buffer, bytes.byteOffset).getFloat64(0, true);
  if (number === 5) return all(bytes, 1).map((value) => otlpValue(value.bytes));
  return Number(BigInt.asIntN(64, integer));
}

const attributesOf = (fields: readonly ProtobufField[]): OtlpAttributes =>
  Object.fromEntries(fields.map(({ bytes }) => [text(bytes, 1), otlpValue(all(bytes, 2)[0]!.bytes)]));

/** Of an `ExportTraceServiceRequest`. */
function spansOf(body: Uint8Array): OtlpSpan[] {
  return all(body, 1).flatMap(({ bytes: ofResource }) => {
    const resource = attributesOf(all(all(ofResource, 1)[0]!.bytes, 1));
    const spans = all(ofResource, 2).flatMap(({ bytes: ofScope }) => all(ofScope, 2));
    return spans.map(({ bytes: span }) => ({
      name: text(span, 5),
      traceId: hex(span, 1),
      spanId: hex(span, 2),
      parentSpanId: hex(span, 4),
      startMs: ms(span, 7),
      endMs: ms(span, 8),
      attributes: attributesOf(all(span, 9)),
      resource,
    }));
  });
}
