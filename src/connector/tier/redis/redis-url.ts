import { byName } from '../../../base/by-name.ts';
import { redisUrlInvalid } from '../../errors.ts';

export interface RedisAddress {
  readonly host: string;
  readonly port: number;
}

export interface RedisUrl {
  /** One address, or several of one cluster. */
  readonly addresses: readonly RedisAddress[];
  readonly isCluster: boolean;
  readonly isTls: boolean;
  readonly username?: string;
  readonly password?: string;
  readonly database: number;
  /** For messages: without user and password. */
  readonly label: string;
}

/** Scheme, user information, addresses, database, query. Addresses have no `/` or `?`, user information may have `@`. */
const pattern = /^([a-z]+):\/\/(?:([^/?#]*)@)?([^/?#@]*)(?:\/([^?#]*))?(?:\?([^#]*))?$/i;
const schemes: Readonly<Record<string, { readonly isTls: boolean }>> = byName({
  redis: { isTls: false },
  valkey: { isTls: false },
  rediss: { isTls: true },
  valkeys: { isTls: true },
});
const defaultPort = 6379;

/**
 * Reads `redis://[[user]:password@]host[:port][/database]`, also with `valkey`, `rediss` and `valkeys`, and
 * `redis://a:6379,b:6379?cluster=true`.
 * @throws KvasirError `redisUrlInvalid`. Messages have no part of the URL that may belong to a password.
 */
export function parseRedisUrl(url: string): RedisUrl {
  const match = pattern.exec(url);
  if (match === null) throw invalid('it is not scheme://address');
  const [, scheme = '', userInfo, hosts = '', path = '', query = ''] = match;
  const known = schemes[scheme.toLowerCase()];
  if (known === undefined) throw invalid(`the scheme must be ${Object.keys(schemes).join(', ')}`);
  const addresses = hosts.split(',').map(readAddress);
  const isCluster = readQuery(query);
  const database = readDatabase(path);
  if (addresses.length > 1 && !isCluster) throw invalid('several addresses need ?cluster=true');
  if (isCluster && database !== 0) throw invalid('a cluster has only database 0');
  return {
    addresses,
    isCluster,
    ...known,
    ...readUser(userInfo),
    database,
    label: labelOf(scheme.toLowerCase(), addresses, database, isCluster),
  };
}

function readAddress(text: string): RedisAddress {
  const match = /^(?:\[([0-9a-f:.]+)\]|([^:[\]\s]+))(?::(\d{1,5}))?$/i.exec(text);
  const port = Number(match?.[3] ?? defaultPort);
  const host = match?.[1] ?? match?.[2];
  if (host === undefined) throw invalid('an address must be host or host:port');
  if (port < 1 || port > 65_535) throw invalid('a port must be from 1 to 65535');
  return { host, port };
}

function readUser(userInfo: string | undefined): { readonly username?: string; readonly password?: string } {
  if (userInfo === undefined) return {};
  const colon = userInfo.indexOf(':');
  if (colon < 0) throw invalid('the user needs a password, as in user:password@ or :password@');
  const username = decode(userInfo.slice(0, colon));
  const password = decode(userInfo.slice(colon + 1));
  if (password === '') throw invalid('the password is empty');
  return username === '' ? { password } : { username, password };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw invalid('user or password have a percent sign that begins no percent encoding');
  }
}

function readDatabase(path: string): number {
  if (path === '') return 0;
  if (!/^\d{1,5}$/.test(path)) throw invalid('the path must be the number of a database');
  return Number(path);
}

function readQuery(query: string): boolean {
  let isCluster = false;
  for (const [name, value] of new URLSearchParams(query)) {
    if (name !== 'cluster') throw invalid('its only parameter is cluster');
    if (value !== 'true' && value !== 'false') throw invalid('cluster must be true or false');
    isCluster = value === 'true';
  }
  return isCluster;
}

function labelOf(scheme: string, addresses: readonly RedisAddress[], database: number, isCluster: boolean): string {
  const hosts = addresses.map(({ host, port }) => `${host.includes(':') ? `[${host}]` : host}:${port}`);
  return `${scheme}://${hosts.join(',')}${database === 0 ? '' : `/${database}`}${isCluster ? '?cluster=true' : ''}`;
}

const invalid = (reason: string) => redisUrlInvalid({ reason });
