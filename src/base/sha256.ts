import { hash } from 'node:crypto';

const digest = new Uint8Array(32);

/**
 * For many short messages: takes a third of the time of `createHash`, and creates no native object per message. Every
 * call returns the same array: copy it before the next call.
 */
export function sha256(bytes: Uint8Array): Uint8Array {
  // The result is a string, because creating a Buffer takes longer than the digest.
  const text = hash('sha256', bytes, 'binary');
  for (let i = 0; i < digest.length; i++) digest[i] = text.charCodeAt(i);
  return digest;
}
