import { X509Certificate } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import { readRegular } from '../../base/read-limited.ts';
import { tlsUnusable } from './server-errors.ts';

/** Whether clients show a certificate, as in Python's `ssl`: 0 never, 1 if they want to, 2 always. */
export type ClientCertificates = 0 | 1 | 2;

export interface TlsFiles {
  /** PEM: the server's certificate and those between it and the root. */
  readonly certificate: string;
  /** PEM; default: the key is in the file of the certificate. */
  readonly key?: string;
  /** PEM: the roots of the certificates of clients. */
  readonly clientRoots?: string;
  readonly clientCertificates: ClientCertificates;
}

/** The contents of the files, which belong together. */
export interface TlsIdentity {
  readonly cert: Buffer;
  readonly key: Buffer;
  readonly ca?: Buffer;
  readonly clientCertificates: ClientCertificates;
  readonly subject: string;
  /** Milliseconds since the epoch. */
  readonly endsMs: number;
}

/** @throws tlsUnusable if a file cannot be read, is not PEM, or the key is not that of the certificate. */
export async function readTlsIdentity(files: TlsFiles): Promise<TlsIdentity> {
  const [cert, key, ca] = await Promise.all([
    readPem('--ssl-certfile', files.certificate),
    files.key === undefined ? undefined : readPem('--ssl-keyfile', files.key),
    files.clientRoots === undefined ? undefined : readPem('--ssl-ca-certs', files.clientRoots),
  ]);
  const identity = { cert, key: key ?? cert, ...(ca === undefined ? {} : { ca }) };
  try {
    const { subject, validTo } = new X509Certificate(cert);
    createSecureContext(identity);
    const { clientCertificates } = files;
    return { ...identity, clientCertificates, subject: subject.replaceAll('\n', ', '), endsMs: Date.parse(validTo) };
  } catch (error) {
    const given = [files.certificate, files.key ?? [], files.clientRoots ?? []].flat().join(', ');
    throw tlsUnusable({ files: given, reason: reasonOf(error as NodeJS.ErrnoException) }, error);
  }
}

/** The certificates of all public authorities have less than 1 MiB. */
const pemBytesMax = 16 * 2 ** 20;

async function readPem(flag: string, path: string): Promise<Buffer> {
  let bytes: Buffer;
  try {
    bytes = await readRegular(path, pemBytesMax);
  } catch (error) {
    throw tlsUnusable(
      {
        files: path,
        reason: `it cannot be read (${(error as NodeJS.ErrnoException).code ?? (error as Error).message})`,
      },
      error,
    );
  }
  if (bytes.includes('-----BEGIN ')) return bytes;
  throw tlsUnusable({ files: path, reason: `${flag} names a file in PEM format, which has lines with -----BEGIN` });
}

/** OpenSSL's messages are for people who know its source. */
function reasonOf({ code = '', message }: NodeJS.ErrnoException): string {
  if (/KEY_VALUES_MISMATCH|KEY_TYPE_MISMATCH/.test(code)) return 'the key is not that of the certificate';
  if (/NO_START_LINE|UNSUPPORTED/.test(code)) return 'there is no key, or no certificate, that can be read';
  if (/INTERRUPTED|BAD_DECRYPT|BAD_PASSWORD|MISSING_PASSPHRASE/.test(code)) return 'the key is encrypted';
  return message;
}
