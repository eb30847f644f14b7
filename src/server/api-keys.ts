import { createHash, timingSafeEqual } from 'node:crypto';

/** Whether a key is one of `keys`. Digests have equal lengths and all are compared, so the time does not depend on the key. */
export function keyCheck(keys: readonly string[]): (key: string) => boolean {
  const digests = keys.map(digestOf);
  return (key) => {
    const digest = digestOf(key);
    let isKnown = false;
    for (const known of digests) isKnown = timingSafeEqual(digest, known) || isKnown;
    return isKnown;
  };
}

const digestOf = (text: string): Buffer => createHash('sha256').update(text).digest();
