import type { KvasirError } from '../../../base/errors.ts';
import { redisRefused } from '../../errors.ts';

/** The commands that the tier sends, for messages about permissions. */
export const commandsNeeded = '+getex +set +exists +expire +unlink';

/** Answers that a change of the URL or of the server's settings ends, not time. The remedy is a part of the message. */
const remedies: readonly (readonly [pattern: RegExp, remedy: string])[] = [
  [/^NOAUTH/, 'Put the password into the URL: redis://user:password@host:6379'],
  [/^WRONGPASS|invalid password/, 'Correct the user and the password in the URL'],
  [
    /^NOPERM/,
    `Give the user these permissions: ACL SETUSER <user> ~kvasir:* ${commandsNeeded}, and +cluster|slots in a cluster`,
  ],
  [/^DENIED/, 'Set a password on the server (requirepass), or the addresses that it listens to (bind)'],
  [/unknown command/i, 'The tier needs Redis 6.2, Valkey 7.2 or later versions'],
  [/DB index|SELECT is not allowed/i, 'Name a database in the URL that the server has'],
  [/^(CROSSSLOT|MOVED)/, 'The server is part of a cluster: add ?cluster=true to the URL'],
  [/cluster support disabled/, 'The server is not part of a cluster: remove ?cluster=true from the URL'],
  [/Protocol error|Unknown RESP type|is not Redis's protocol/i, 'Name the address of a Redis or Valkey server'],
  [
    /SELF_SIGNED|UNABLE_TO_(GET|VERIFY)|CERT_|ALTNAME/,
    'Name the certificate of the authority in NODE_EXTRA_CA_CERTS, or a host that the certificate has',
  ],
  [/ERR_SSL|EPROTO/, 'The server does not answer with TLS: correct the port, or use redis://'],
];

/** The error for an operator, if trying again cannot help. `reason` is the error's text, `code` its code if it has one. */
export function refusalOf(server: string, reason: string, code: string | undefined): KvasirError | undefined {
  const found = remedies.find(([pattern]) => pattern.test(reason) || (code !== undefined && pattern.test(code)));
  return found === undefined ? undefined : redisRefused({ server, reason, remedy: found[1] });
}

/**
 * The text of a client's error without passwords. Errors of the client are never passed on: they have the arguments of
 * their command, which are a password or a block.
 */
export function textOfError(error: unknown, password: string | undefined): string {
  const text = rawText(error);
  return password === undefined ? text : text.replaceAll(password, '***');
}

function rawText(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { lastNodeError, errors, code } = error as ClientError;
  // A cluster's error has the error of the last node, and Node's error for several addresses has no text.
  if (lastNodeError !== undefined && lastNodeError !== null) return rawText(lastNodeError);
  // The client's texts for a connection that has closed name its own settings.
  if (/^Connection is closed|enableOfflineQueue/.test(error.message)) return 'the connection is closed';
  if (error.message !== '') return error.message;
  return errors?.[0] === undefined ? (code ?? error.name) : rawText(errors[0]);
}

export function codeOfError(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  const { lastNodeError, code } = error as ClientError;
  return typeof code === 'string' ? code : codeOfError(lastNodeError);
}

interface ClientError extends Error {
  readonly code?: string;
  readonly lastNodeError?: unknown;
  readonly errors?: readonly unknown[];
}
