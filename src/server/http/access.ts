import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Caller, Callers } from './callers.ts';
import { allowOrigin } from './cors.ts';
import { HostCheck } from './host-check.ts';
import {
  adminOnly,
  type ErrorAnswer,
  hostNotAllowed,
  mediaTypeNotSupported,
  originNotAllowed,
  unauthorized,
} from './server-errors.ts';

export interface AccessOptions {
  readonly callers: Callers;
  /** For a server without an API key; see `HostCheck`. */
  readonly allowedHosts?: readonly string[];
  /** Origins of web pages whose scripts may call the API. */
  readonly allowedOrigins?: readonly string[];
  readonly lenientApi?: LenientApi;
}

/** An API whose clients send JSON under any content type, and read no errors but its own. */
export interface LenientApi {
  /** Also for paths without an endpoint. */
  hasPath(path: string): boolean;
  errorBody(answer: ErrorAnswer): object;
}

/**
 * Decides before a request is read who may send it. With a key, the key decides. Without one, every program of the machine may use the
 * server, but not every web page that a browser on the machine shows: neither a page that gives the server its own name, nor one of
 * another site.
 */
export class Access {
  readonly #callers: Callers;
  readonly #hosts: HostCheck;
  readonly #origins: readonly string[];
  readonly #lenientApi: LenientApi | undefined;

  constructor({ callers, allowedHosts, allowedOrigins = [], lenientApi }: AccessOptions) {
    this.#callers = callers;
    this.#hosts = new HostCheck(allowedHosts);
    this.#origins = allowedOrigins;
    this.#lenientApi = lenientApi;
  }

  /**
   * Who sends this request. Undefined: it was a question of a browser, which is answered.
   * @throws the error of a request that is refused
   */
  callerOf(request: FastifyRequest, reply: FastifyReply): Caller | undefined {
    const { requiresKey, everybody } = this.#callers;
    if (this.#lenientApi?.hasPath(request.endpointPath) === true) readAsJson(request);
    if (!requiresKey) this.#checkHost(request);
    if (this.#origins.length > 0 && allowOrigin(request, reply, this.#origins)) return undefined;
    const { isPublic, isForAdmins } = request.routeOptions.config;
    if (isPublic === true) return everybody;
    if (!requiresKey) this.#checkPage(request);
    // Clients of a server without API keys may send any.
    const needsKey = requiresKey || (isForAdmins === true && this.#callers.hasAdminKey);
    const caller = needsKey ? this.#withKey(request) : everybody;
    if (isForAdmins === true && !caller.isAdmin) throw adminOnly({ method: request.method, path: pathOf(request) });
    return caller;
  }

  /** `x-api-key` is Anthropic's header. */
  #withKey({ headers: { authorization, 'x-api-key': other } }: FastifyRequest): Caller {
    if (authorization === undefined && other === undefined) throw unauthorized({ problem: 'No API key was sent.' });
    const key = authorization === undefined ? String(other) : /^Bearer +(.*)$/i.exec(authorization)?.[1];
    const caller = this.#callers.withKey(key ?? '');
    if (caller === undefined) throw unauthorized({ problem: 'The API key is wrong.' });
    return caller;
  }

  /** Proxies say in other headers which name they were called by. Everybody can send those. */
  #checkHost(request: FastifyRequest): void {
    for (const host of hostsOf(request)) if (!this.#hosts.allows(host)) throw hostNotAllowed({ host: shorten(host) });
  }

  /**
   * A browser asks before it sends JSON, a key or a `DELETE` to another site, and gets no permission. So a `POST` needs one of the two,
   * also without a body. The origin is checked too, because some programs with pages in them do not ask.
   */
  #checkPage(request: FastifyRequest): void {
    const { method, headers, is404 } = request;
    if (is404 || method === 'GET' || method === 'HEAD' || method === 'OPTIONS') return;
    if (isForeign(request, this.#origins))
      throw originNotAllowed({ origin: shorten(headers.origin ?? 'another site') });
    const { 'content-type': type, authorization } = headers;
    if (method === 'POST' && authorization === undefined && !/^application\/json *(;|$)/i.test(type ?? ''))
      throw mediaTypeNotSupported({ actual: type ?? 'none' });
  }
}

/**
 * Ollama reads every body as JSON. Its own examples, curl's `-d` and LiteLLM send another content type or none. Scripts and forms of web
 * pages cannot use this: with a `POST`, a browser sends `Origin`, and `Sec-Fetch-Site` to servers with TLS or on its own machine.
 */
function readAsJson({ raw: { headers } }: FastifyRequest): void {
  if (headers.origin === undefined && headers['sec-fetch-site'] === undefined)
    headers['content-type'] = 'application/json';
}

/** The names by which the client calls the server: all of them, if it sends several. Clients before HTTP/1.1 may send none. */
function hostsOf({ raw, headers }: FastifyRequest): string[] {
  const hosts = raw.rawHeaders.filter((_, i, all) => i % 2 === 1 && /^(host|:authority)$/i.test(all[i - 1]!));
  const [, inTarget] = /^[a-z][a-z\d+.-]*:\/\/([^/?#]*)/i.exec(raw.url ?? '') ?? [];
  const all = [...hosts, ...(headers.host === undefined ? [] : [headers.host]), ...(inTarget ? [inTarget] : [])];
  return all.filter((host) => host !== '');
}

/** Whether a script of a page of another origin sends this, without permission. Programs other than browsers send neither header. */
function isForeign({ headers }: FastifyRequest, allowed: readonly string[]): boolean {
  const { origin, host, 'sec-fetch-site': site } = headers;
  if (origin !== undefined && (allowed.includes('*') || allowed.includes(origin))) return false;
  // The browser knows the origin of the page also behind a proxy that has changed `Host`.
  if (site !== undefined) return site !== 'same-origin' && site !== 'none';
  if (origin === undefined) return false;
  if (!URL.canParse(origin)) return true;
  const page = new URL(origin);
  const own = `${page.protocol}//${host}`;
  return !URL.canParse(own) || page.host !== new URL(own).host;
}

const pathOf = ({ url }: FastifyRequest): string => url.split('?', 1)[0]!.slice(0, 200);

const shorten = (text: string): string => (text.length <= 100 ? text : `${text.slice(0, 100)}...`);
