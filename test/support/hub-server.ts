import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { HubSettings } from '../../src/hub/settings.ts';

interface Repository {
  commit: string;
  readonly files: Map<string, Buffer>;
  readonly token?: string;
}

/** What the server does with the next request of content, instead of sending all of it. */
export type ContentFault =
  | { readonly kind: 'lost-connection'; readonly afterBytes: number }
  | { readonly kind: 'silence'; readonly afterBytes: number }
  | { readonly kind: 'status'; readonly status: number; readonly headers?: Readonly<Record<string, string>> }
  | { readonly kind: 'changed-bytes' }
  | { readonly kind: 'whole-file' }
  | { readonly kind: 'other-range' };

/**
 * A hub that speaks Hugging Face's protocol over HTTP: descriptions of repositories, tokens, and redirects to a second
 * host, which sends ranges of the content.
 */
export class HubServer {
  readonly endpoint: string;
  /** Requests of the content, in order. */
  readonly contentRequests: { readonly path: string; readonly range?: string; readonly authorization?: string }[] = [];
  /** Faults of the next requests of content, in order. */
  readonly contentFaults: ContentFault[] = [];
  /** Answers to the next requests of descriptions: a status, in order. */
  readonly descriptionFaults: { readonly status: number; readonly headers?: Readonly<Record<string, string>> }[] = [];
  /** Names of repositories with GGUF files, by the model that they were made from. */
  readonly quantizations = new Map<string, readonly string[]>();
  descriptionRequests = 0;
  /** Changes descriptions before they are sent, in any way. */
  changeDescription: (description: HubDescription) => unknown = (description) => description;
  /** Where the next request of content is sent, instead of the second host. */
  redirect: string | undefined;
  readonly #repositories = new Map<string, Repository>();
  readonly #hub: Server;
  readonly #content: Server;

  private constructor(hub: Server, content: Server) {
    this.#hub = hub;
    this.#content = content;
    this.endpoint = `http://127.0.0.1:${portOf(hub)}`;
    hub.on('request', (request, response) => send(response, this.#answer(request)));
    content.on('request', (request, response) => this.#sendContent(request, response));
  }

  static async start(): Promise<HubServer> {
    const servers = [createServer(), createServer()] as const;
    for (const server of servers) await once(server.listen(0, '127.0.0.1'), 'listening');
    return new HubServer(...servers);
  }

  async stop(): Promise<void> {
    for (const server of [this.#hub, this.#content]) {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    }
  }

  /** Publishes a repository, or a new commit of it. `token`: needed to read it. */
  publish(name: string, files: Readonly<Record<string, Uint8Array>>, token?: string): void {
    const content = new Map(Object.entries(files).map(([path, bytes]) => [path, Buffer.from(bytes)]));
    const commit = createHash('sha1');
    for (const [path, bytes] of content) commit.update(path).update(bytes);
    this.#repositories.set(name, {
      commit: commit.digest('hex'),
      files: content,
      ...(token === undefined ? {} : { token }),
    });
  }

  settings(cacheFolder: string, token?: string): HubSettings {
    return { endpoint: this.endpoint, token, cacheFolder, isOffline: false };
  }

  #answer(request: IncomingMessage): Answer {
    const url = new URL(request.url!, this.endpoint);
    if (url.pathname === '/api/models') return this.#search(url);
    const description = /^\/api\/models\/([^/]+\/[^/]+)\/revision\/(.+)$/.exec(url.pathname);
    if (description !== null) this.descriptionRequests++;
    const fault = description === null ? undefined : this.descriptionFaults.shift();
    if (fault !== undefined) return fault;
    const resolved = /^\/([^/]+\/[^/]+)\/resolve\/[^/]+\/(.+)$/.exec(url.pathname);
    const name = (description ?? resolved)?.[1] ?? '';
    const repository = this.#repositories.get(name);
    const token = /^Bearer (.+)$/.exec(request.headers.authorization ?? '')?.[1];
    // Hugging Face does not tell strangers which private repositories exist.
    if (repository === undefined || (repository.token !== undefined && token === undefined)) {
      return refusal(token === undefined ? 401 : 404, 'Repository not found');
    }
    if (repository.token !== undefined && token !== repository.token) {
      return refusal(403, 'Access to this model is restricted');
    }
    if (description !== null) {
      return describeRepository(repository, decodeURIComponent(description[2]!), this.changeDescription);
    }
    const { redirect } = this;
    if (redirect !== undefined) return { status: 302, headers: { location: redirect } };
    const location = `http://127.0.0.1:${portOf(this.#content)}/${encodeURIComponent(name)}/${resolved![2]}`;
    return { status: 302, headers: { location } };
  }

  #search(url: URL): Answer {
    const [filter = ''] = url.searchParams.getAll('filter');
    const names = this.quantizations.get(filter.replace('base_model:quantized:', '')) ?? [];
    return { status: 200, body: JSON.stringify(names.map((id) => ({ id }))) };
  }

  #sendContent(request: IncomingMessage, response: ServerResponse): void {
    const [, repository = '', ...path] = request.url!.split('/').map(decodeURIComponent);
    const { range, authorization } = request.headers;
    this.contentRequests.push({
      path: path.join('/'),
      ...(range === undefined ? {} : { range }),
      ...(authorization === undefined ? {} : { authorization }),
    });
    const bytes = this.#repositories.get(repository)!.files.get(path.join('/'))!;
    const fault = this.contentFaults.shift();
    if (fault?.kind === 'status') send(response, fault);
    else sendPart(response, bytes, fault?.kind === 'whole-file' ? undefined : range, fault);
  }
}

interface Answer {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

const portOf = (server: Server): number => (server.address() as AddressInfo).port;

const refusal = (status: number, reason: string): Answer => ({ status, headers: { 'x-error-message': reason } });

export interface HubDescription {
  readonly sha: string;
  readonly siblings: readonly {
    readonly rfilename: string;
    readonly size: number;
    readonly blobId: string;
    readonly lfs: { readonly sha256: string; readonly size: number; readonly pointerSize: number };
  }[];
}

function describeRepository(
  { commit, files }: Repository,
  revision: string,
  change: (description: HubDescription) => unknown,
): Answer {
  if (revision !== 'main' && revision !== commit) return refusal(404, `Invalid rev id: ${revision}`);
  const siblings = [...files].map(([rfilename, bytes]) => ({
    rfilename,
    size: bytes.length,
    blobId: createHash('sha1').update(bytes).digest('hex'),
    lfs: { sha256: createHash('sha256').update(bytes).digest('hex'), size: bytes.length, pointerSize: 134 },
  }));
  const changed = change({ sha: commit, siblings });
  return { status: 200, body: typeof changed === 'string' ? changed : JSON.stringify(changed) };
}

function sendPart(response: ServerResponse, bytes: Buffer, range: string | undefined, fault?: ContentFault): void {
  const start = Number(/^bytes=(\d+)-$/.exec(range ?? '')?.[1] ?? 0);
  const part = fault?.kind === 'changed-bytes' ? Buffer.alloc(bytes.length - start, 1) : bytes.subarray(start);
  const place = {
    'content-range': `bytes ${fault?.kind === 'other-range' ? start + 1 : start}-${bytes.length - 1}/${bytes.length}`,
  };
  response.writeHead(range === undefined ? 200 : 206, {
    'content-length': part.length,
    ...(range === undefined ? {} : place),
  });
  if (fault?.kind !== 'lost-connection' && fault?.kind !== 'silence') response.end(part);
  else {
    response.write(part.subarray(0, fault.afterBytes), () => {
      if (fault.kind === 'lost-connection') response.socket?.end();
    });
  }
}

function send(response: ServerResponse, { status, headers, body = '' }: Answer): void {
  response.writeHead(status, { ...headers });
  response.end(body);
}
