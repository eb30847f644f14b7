import { spawnSync } from 'node:child_process';
import { join } from 'node:path';

/** Whether this machine can make certificates. */
export const hasOpenssl = spawnSync('openssl', ['version']).status === 0;

export interface CertificateFiles {
  readonly certificate: string;
  readonly key: string;
}

/** A certificate in `folder`, for 127.0.0.1: signed by itself, or by `by`. */
export function makeCertificate(folder: string, name: string, by?: CertificateFiles): CertificateFiles {
  const [certificate, key] = [join(folder, `${name}.pem`), join(folder, `${name}.key`)];
  const signer = by === undefined ? [] : ['-CA', by.certificate, '-CAkey', by.key];
  const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
  const subject = ['-subj', `/CN=${name}`, '-addext', 'subjectAltName=IP:127.0.0.1', '-days', '3650'];
  const { status, stderr } = spawnSync(
    'openssl',
    ['req', '-x509', ...curve, ...signer, ...subject, '-keyout', key, '-out', certificate],
    { encoding: 'utf8' },
  );
  if (status !== 0) throw new Error(stderr);
  return { certificate, key };
}
