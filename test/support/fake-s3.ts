import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';

export interface FakeAnswer {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Uint8Array;
}

/** A bucket in memory, for answers that a correct server does not give. It checks no signatures. */
export class FakeS3 {
  readonly endpoint: string;
  readonly objects = new Map<string, Uint8Array>();
  readonly requests: { readonly method: string; readonly url: URL; readonly headers: IncomingMessage['headers'] }[] =
    [];
  /** Answers instead of the bucket, unless undefined. */
  answer: ((method: string, url: URL) => FakeAnswer | undefined) | undefined;
  /** Writes an answer itself, unless it returns false. */
  stream: ((request: IncomingMessage, response: ServerResponse) => boolean) | undefined;
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
    this.endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    server.on('request', async (request: IncomingMessage, response) => {
      const url = new URL(request.url!, this.endpoint);
      const method = request.method!;
      this.requests.push({ method, url, headers: request.headers });
      const body = await buffer(request);
      if (this.stream?.(request, response) === true) return;
      const {
        status,
        headers = {},
        body: content = '',
      } = this.answer?.(method, url) ?? this.#answer(request, url, body);
      response.writeHead(status, { ...headers, 'content-length': String(Buffer.byteLength(content)) });
      response.end(content);
    });
  }

  static async start(): Promise<FakeS3> {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new FakeS3(server);
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #answer({ method, headers }: IncomingMessage, url: URL, body: Uint8Array): FakeAnswer {
    const name = decodeURIComponent(url.pathname.replace(/^\/[^/]*\/?/, ''));
    if (name === '') return this.#list(url.searchParams);
    const stored = this.objects.get(name);
    if (method === 'PUT') this.objects.set(name, body);
    else if (method === 'DELETE') this.objects.delete(name);
    else if (stored === undefined) return s3Error(404, 'NoSuchKey');
    else return part(stored, headers.range);
    return { status: method === 'PUT' ? 200 : 204 };
  }

  #list(query: URLSearchParams): FakeAnswer {
    const [prefix, after] = [query.get('prefix') ?? '', query.get('start-after') ?? ''];
    const found = [...this.objects].filter(([name]) => name.startsWith(prefix) && name > after);
    const items = found
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
      .map(([name, { length }]) => `<Contents><Key>${name}</Key><Size>${length}</Size></Contents>`);
    const body = `<ListBucketResult><IsTruncated>false</IsTruncated>${items.join('')}</ListBucketResult>`;
    return { status: 200, headers: { 'content-type': 'application/xml' }, body };
  }
}

export const s3Error = (status: number, code: string): FakeAnswer => ({
  status,
  headers: { 'content-type': 'application/xml' },
  body: `<?xml version="1.0"?><Error><Code>${code}</Code><Message>${code} of the test</Message></Error>`,
});

function part(stored: Uint8Array, range: string | undefined): FakeAnswer {
  const match = /^bytes=(\d+)-(\d+)$/.exec(range ?? '');
  if (match === null) return { status: 200, body: stored };
  const [first, last] = [Number(match[1]), Math.min(Number(match[2]), stored.length - 1)];
  if (first >= stored.length) return s3Error(416, 'InvalidRange');
  const headers = { 'content-range': `bytes ${first}-${last}/${stored.length}` };
  return { status: 206, headers, body: stored.subarray(first, last + 1) };
}
