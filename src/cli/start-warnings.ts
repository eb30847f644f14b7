import type { EngineEvent } from '../engine/contract.ts';

/** The flags of `kvasir serve` that decide who may do what. */
export interface ExposureFlags {
  readonly host: string;
  readonly apiKey?: readonly string[];
  readonly apiKeyLimits?: object;
  readonly allowedHosts?: readonly string[];
  readonly allowedOrigins?: readonly string[];
  readonly enableFaultInjection?: boolean;
}

/** What an operator should know before the server listens: who may send requests, and what a request may damage. */
export function startWarnings(flags: ExposureFlags): EngineEvent[] {
  const { host, apiKey, apiKeyLimits, allowedHosts = [], allowedOrigins = [], enableFaultInjection } = flags;
  const messages: string[] = [];
  const hasKey = apiKey !== undefined || apiKeyLimits !== undefined;
  if (!hasKey && !isLoopback(host))
    messages.push(
      `There is no API key, and the server listens on ${host}: everyone who can reach this address may send requests. Set --api-key, or --host 127.0.0.1 for this machine alone.`,
    );
  if (!hasKey && (allowedHosts.includes('*') || allowedOrigins.includes('*')))
    messages.push(
      'There is no API key, and --allowed-hosts or --allowed-origins is *: every web page that someone opens on a machine with access may send requests and read the answers. Set --api-key, or name the hosts and origins.',
    );
  if (enableFaultInjection === true)
    messages.push(
      'Fault injection is on: clients may lose blocks of the KV pool, which costs time. It is for experiments. Remove --enable-fault-injection for other servers.',
    );
  return messages.map((message) => ({ level: 'warn', message, fields: {} }));
}

/** Whether only this machine can reach an address. */
export const isLoopback = (host: string): boolean =>
  /^(localhost|.+\.localhost|127(\.\d{1,3}){1,3}|\[?(0*:)*0*:0*1\]?|\[?::ffff:127(\.\d{1,3}){3}\]?)\.?$/i.test(host);
