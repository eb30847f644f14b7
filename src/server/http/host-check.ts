import { isIP } from 'node:net';
import { hostname } from 'node:os';

/**
 * Whether a server without an API key answers requests for this host. A web page can make its own name resolve to 127.0.0.1 (DNS
 * rebinding). For the browser, the server is then part of that page's site, so the page may read every answer. Such a page can
 * change neither the name in the header `Host` nor make a browser use an IP address as its name.
 */
export class HostCheck {
  readonly #names: ReadonlySet<string>;
  readonly #domains: readonly string[];
  readonly #allowsAll: boolean;

  /** @param allowed names besides the local ones; `*.example.com`: all names below it; `*`: all */
  constructor(allowed: readonly string[] = []) {
    this.#allowsAll = allowed.includes('*');
    this.#domains = allowed.filter((name) => name.startsWith('*.')).map((name) => name.slice(1).toLowerCase());
    this.#names = new Set(['localhost', ...[hostname(), ...allowed].flatMap((name) => hostNameOf(name) ?? [])]);
  }

  /** @param host as in the header: a name or an address, with or without a port */
  allows(host: string): boolean {
    if (this.#allowsAll) return true;
    const name = hostNameOf(host);
    if (name === undefined) return false;
    if (this.#names.has(name) || isAddress(name)) return true;
    return ['.localhost', ...this.#domains].some((domain) => name.endsWith(domain));
  }
}

/** Whether this is a name for `HostCheck`: not a URL, for example. */
export const isHostPattern = (text: string): boolean =>
  text === '*' || hostNameOf(text.replace(/^\*\./, '')) !== undefined;

const isAddress = (name: string): boolean => name.startsWith('[') || isIP(name) !== 0;

/** The name in lower case, without port and final dot; an IPv6 address in brackets. Undefined: not a host. */
function hostNameOf(host: string): string | undefined {
  // A URL may have more than a host, which the header may not.
  if (!/^[^\s/?#@\\]+$/.test(host)) return undefined;
  // Browsers have no zones of IPv6 addresses, and neither have URLs.
  const withoutZone = host.replace(/^(\[[^\]%]*)%[^\]]*\]/, '$1]');
  if (isIP(withoutZone) === 6) return `[${withoutZone}]`;
  if (!URL.canParse(`http://${withoutZone}`)) return undefined;
  return new URL(`http://${withoutZone}`).hostname.replace(/\.$/, '');
}
