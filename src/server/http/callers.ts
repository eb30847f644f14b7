import { createHash, timingSafeEqual } from 'node:crypto';
import { type KeyLimit, KeyQueue, Place } from './key-queues.ts';

/** The owner of an API key, or everybody if the server has no keys. */
export interface Caller {
  /** Tells the requests of this key from those of others. Undefined: the server has one key, or none, beside that of administrators. */
  readonly tenant: string | undefined;
  /** Whether the caller may see and change what concerns the requests of all keys. */
  readonly isAdmin: boolean;
  /** A place for one request, within the limits of the key. */
  place(): Place;
}

interface Owner extends Caller {
  readonly digest: Buffer;
  readonly queue: KeyQueue | undefined;
}

/** The callers of a server. A server with one key has one tenant, and so has a server without keys. Administrators with a key of their own are another. */
export class Callers {
  /** Whether a request needs a key. */
  readonly requiresKey: boolean;
  /** Whether administrators have a key of their own: then no other key is theirs, unless its limits say so. */
  readonly hasAdminKey: boolean;
  /** Of a server that requires no key. */
  readonly everybody: Caller;
  readonly #owners: readonly Owner[];

  constructor(apiKey?: string | readonly string[], limits?: readonly KeyLimit[], adminKey?: string) {
    this.requiresKey = apiKey !== undefined || limits !== undefined;
    this.hasAdminKey = adminKey !== undefined;
    this.everybody = { tenant: undefined, isAdmin: adminKey === undefined, place: () => new Place(undefined) };
    const limited = new Map(limits?.map((limit) => [limit.key, limit]));
    const keys = [...new Set([...(typeof apiKey === 'string' ? [apiKey] : (apiKey ?? [])), ...limited.keys()])];
    const isOnly = keys.length <= 1;
    const owners = keys.map((key, i) => {
      const limit = limited.get(key);
      const queue = limit && new KeyQueue(limit);
      return {
        digest: digestOf(key),
        queue,
        tenant: isOnly ? undefined : `key-${i + 1}`,
        isAdmin: (isOnly && adminKey === undefined) || limit?.isAdmin === true || key === adminKey,
        place: () => new Place(queue),
      };
    });
    const isNew = adminKey !== undefined && !keys.includes(adminKey);
    const place = (): Place => new Place(undefined);
    this.#owners = isNew
      ? [...owners, { digest: digestOf(adminKey), queue: undefined, tenant: 'admin', isAdmin: true, place }]
      : owners;
  }

  /** Those of the keys that have limits. */
  get queues(): readonly KeyQueue[] {
    return this.#owners.flatMap(({ queue }) => queue ?? []);
  }

  /**
   * The owner of this key; undefined: no one has it. Digests have equal lengths and all are compared, so the time does not depend on
   * the key.
   */
  withKey(key: string): Caller | undefined {
    const digest = digestOf(key);
    let found: Caller | undefined;
    for (const owner of this.#owners) if (timingSafeEqual(digest, owner.digest)) found = owner;
    return found;
  }
}

const digestOf = (text: string): Buffer => createHash('sha256').update(text).digest();
