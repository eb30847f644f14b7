import { type Command, Option } from 'commander';
import type { EngineEvent } from '../engine/contract.ts';
import { tlsUnusable } from '../server/http/server-errors.ts';
import { readTlsIdentity, type TlsFiles, type TlsIdentity } from '../server/http/tls.ts';
import type { Server } from '../server/server.ts';
import type { SignalSource } from './context.ts';

/** vLLM's flags. */
export interface TlsFlags {
  readonly sslCertfile?: string;
  readonly sslKeyfile?: string;
  readonly sslCaCerts?: string;
  readonly sslCertReqs: '0' | '1' | '2';
}

export function addTlsFlags(command: Command): void {
  command
    .option('--ssl-certfile <file>', 'certificate for HTTPS, in PEM format; SIGHUP reads it and its key again')
    .option('--ssl-keyfile <file>', 'its key, without a password (default: the key is in the file of the certificate)')
    .option('--ssl-ca-certs <file>', 'roots of the certificates that clients show')
    .addOption(
      new Option('--ssl-cert-reqs <when>', 'whether clients show a certificate; 0: no, 1: if they want to, 2: always')
        .choices(['0', '1', '2'])
        .default('0'),
    );
}

/** @throws tlsUnusable for flags or files that do not fit together */
export async function tlsIdentityOf(flags: TlsFlags): Promise<TlsIdentity | undefined> {
  const files = tlsFilesOf(flags);
  return files && readTlsIdentity(files);
}

function tlsFilesOf(flags: TlsFlags): TlsFiles | undefined {
  const { sslCertfile: certificate, sslKeyfile: key, sslCaCerts: clientRoots } = flags;
  const clientCertificates = flags.sslCertReqs === '2' ? 2 : flags.sslCertReqs === '1' ? 1 : 0;
  if (certificate === undefined) {
    const other = key ?? clientRoots ?? (clientCertificates > 0 ? '--ssl-cert-reqs' : undefined);
    if (other === undefined) return undefined;
    throw tlsUnusable({ files: other, reason: '--ssl-certfile is missing' });
  }
  if (clientCertificates > 0 && clientRoots === undefined)
    throw tlsUnusable({ files: '--ssl-cert-reqs', reason: '--ssl-ca-certs is missing, so every certificate is wrong' });
  return {
    certificate,
    clientCertificates,
    ...(key === undefined ? {} : { key }),
    ...(clientRoots === undefined ? {} : { clientRoots }),
  };
}

export interface RenewalHooks {
  readonly signals: SignalSource;
  onEvent(event: EngineEvent): void;
  /** Called before and after the files are read again. */
  onBegin(): void;
  onEnd(): void;
  /** Called with a sentence after the certificate was read again. */
  onRenewed(message: string): void;
}

/** At SIGHUP, reads the files again. If they cannot be used, the server keeps its certificate. */
export function renewTlsAtHangUp(server: Server, flags: TlsFlags, hooks: RenewalHooks): Disposable {
  let last = Promise.resolve();
  const renew = async (): Promise<void> => {
    hooks.onBegin();
    try {
      const files = tlsFilesOf(flags);
      if (files === undefined) return;
      const identity = await readTlsIdentity(files);
      server.renewTls(identity);
      const ends = new Date(identity.endsMs).toISOString();
      hooks.onRenewed(`certificate read again: ${identity.subject}, valid until ${ends}`);
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      hooks.onEvent({ level: 'warn', message: `The server keeps its certificate. ${reason}`, fields: {} });
    } finally {
      hooks.onEnd();
    }
  };
  // One after the other: the last signal decides.
  const onHangUp = (): void => {
    last = last.then(renew);
  };
  hooks.signals.on('SIGHUP', onHangUp);
  return { [Symbol.dispose]: () => void hooks.signals.off('SIGHUP', onHangUp) };
}
