import { hubAnswerInvalid, hubNotSecure, hubUnreachable } from './errors.ts';
import type { HubSettings } from './settings.ts';

const redirectsMax = 5;
const isRedirect = (status: number): boolean => [301, 302, 303, 307, 308].includes(status);

/**
 * Sends a GET request, and follows redirects only to https addresses: bytes that come without encryption can be read and
 * changed on their way. Plain http is for this machine, and for hubs that the user allows. The token goes only to the
 * hub itself.
 * @throws hubUnreachable, hubNotSecure, hubAnswerInvalid
 */
export async function hubFetch(
  { endpoint, token, isHttpAllowed = false }: HubSettings,
  path: string,
  { signal, headers = {} }: { readonly signal: AbortSignal; readonly headers?: Readonly<Record<string, string>> },
): Promise<Response> {
  const hub = URL.canParse(endpoint) ? new URL(endpoint) : undefined;
  if (hub === undefined || !isSecure(hub, isHttpAllowed)) throw hubNotSecure({ endpoint });
  let url = new URL(`${endpoint}${path}`);
  for (let redirects = 0; ; redirects++) {
    const authorization = token === undefined || url.origin !== hub.origin ? {} : { authorization: `Bearer ${token}` };
    const response = await send(endpoint, url, {
      headers: { ...headers, ...authorization },
      redirect: 'manual',
      signal,
    });
    const location = response.headers.get('location');
    if (!isRedirect(response.status) || location === null) return response;
    await response.body?.cancel();
    const next = URL.canParse(location, url.href) ? new URL(location, url.href) : undefined;
    // A hub on this machine may redirect to others on this machine, but no other hub may.
    const isHttpFine = isHttpAllowed || (hub.protocol === 'http:' && isLoopback(hub));
    if (next === undefined || !isSecure(next, isHttpAllowed) || (next.protocol === 'http:' && !isHttpFine)) {
      throw hubAnswerInvalid({
        endpoint,
        field: 'redirect',
        found: JSON.stringify(location),
        expected: 'an https address',
      });
    }
    if (redirects === redirectsMax) {
      const expected = `at most ${redirectsMax} redirects`;
      throw hubAnswerInvalid({ endpoint, field: 'redirect', found: JSON.stringify(location), expected });
    }
    url = next;
  }
}

async function send(endpoint: string, url: URL, init: RequestInit): Promise<Response> {
  try {
    return await fetch(url, init);
  } catch (error) {
    throw hubUnreachable({ endpoint, reason: reasonOf(error) }, error);
  }
}

const isSecure = (url: URL, isHttpAllowed: boolean): boolean =>
  url.username === '' &&
  url.password === '' &&
  (url.protocol === 'https:' || (url.protocol === 'http:' && (isHttpAllowed || isLoopback(url))));

const isLoopback = ({ hostname }: URL): boolean =>
  hostname === 'localhost' ||
  hostname.endsWith('.localhost') ||
  hostname === '[::1]' ||
  /^127(\.\d+){3}$/.test(hostname);

/** The bytes of a body, which may be endless. @throws hubAnswerInvalid, hubUnreachable */
export async function limitedBody(endpoint: string, response: Response, bytesMax: number): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  try {
    for await (const chunk of response.body ?? []) {
      length += chunk.length;
      chunks.push(chunk);
      if (length > bytesMax) break;
    }
  } catch (error) {
    throw hubUnreachable({ endpoint, reason: reasonOf(error) }, error);
  }
  if (length > bytesMax) {
    throw hubAnswerInvalid({ endpoint, field: 'body', found: 'more', expected: `at most ${bytesMax} bytes` });
  }
  return Buffer.concat(chunks);
}

/** `fetch` hides the reason in the cause. */
export function reasonOf(error: unknown): string {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  if (!(cause instanceof Error)) return String(cause);
  const { code } = cause as NodeJS.ErrnoException;
  return cause.message || code || cause.name;
}
