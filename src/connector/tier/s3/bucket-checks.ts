import type { KvasirError } from '../../../base/errors.ts';
import type { KvIdentity } from '../../connector.ts';
import { bucketUnusable } from '../../errors.ts';
import { blocksPerName, folderOf } from './object-name.ts';
import { S3Failure } from './s3-failure.ts';

interface Location {
  readonly bucket: string;
  readonly prefix?: string;
  readonly endpoint?: string;
  readonly identity: KvIdentity;
}

const bucketPattern = /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/;

/** The folder of the objects. Throws `bucketUnusable` for a location that no server can have. */
export function checkedLocation(location: Location): string {
  const { bucket, prefix = '', endpoint, identity } = location;
  const wrong = (reason: string): KvasirError => unusable(location, new S3Failure('refused', 'Location', reason));
  if (!bucketPattern.test(bucket)) {
    throw wrong('a name has 3 to 63 lower-case letters, digits, dots and hyphens');
  }
  // The URL is not part of the message: it may have a password.
  const url = endpoint === undefined ? undefined : urlOf(endpoint);
  if (endpoint !== undefined && !/^https?:$/.test(url?.protocol ?? '')) {
    throw wrong('the endpoint is not a URL that begins with http:// or https://');
  }
  if (url?.username || url?.password) {
    throw wrong('the endpoint has a user name or a password, and URLs are logged');
  }
  if (/[^\x21-\x7e]|(^|\/)\.{0,2}(\/(?!$)|$)/.test(prefix.replace(/^\/+|\/+$/g, '') || 'x')) {
    throw wrong('the prefix has a space, a character outside of ASCII, or an empty part between slashes');
  }
  const folder = folderOf(prefix, identity);
  if (blocksPerName(folder) < 1) throw wrong('the prefix is too long');
  return folder;
}

export function unusable({ bucket, endpoint }: Location, { code, message }: S3Failure): KvasirError {
  const at = endpoint === undefined ? '' : ` at ${hostOf(endpoint)}`;
  return bucketUnusable({ bucket, at, reason: message, remedy: remedyOf(code) });
}

const hostOf = (endpoint: string): string => urlOf(endpoint)?.host ?? 'the endpoint';

/** `URL.parse` does not exist in Node 20. */
const urlOf = (endpoint: string): URL | undefined => (URL.canParse(endpoint) ? new URL(endpoint) : undefined);

const permissions = 's3:ListBucket, s3:GetObject, s3:PutObject and s3:DeleteObject';

function remedyOf(code: string): string {
  switch (code) {
    case 'NoSuchBucket':
      return 'Create the bucket, or name another';
    case 'AccessDenied':
    case 'Forbidden':
      return `Allow these credentials ${permissions} on the bucket`;
    case 'CredentialsProviderError':
    case 'ExpiredToken':
    case 'InvalidAccessKeyId':
    case 'InvalidToken':
    case 'SignatureDoesNotMatch':
    case 'XAdminUserNotFound':
      return 'Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to valid credentials, or use a profile or role of AWS';
    case 'AuthorizationHeaderMalformed':
    case 'PermanentRedirect':
    case 'RegionMissing':
      return 'Name the region of the bucket';
    case 'Location':
      return 'Correct the bucket, the prefix or the endpoint';
    default:
      return 'Check the bucket, the endpoint, the region and the credentials';
  }
}
