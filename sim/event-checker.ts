import { assert } from '../src/base/assert.ts';
import { blockKey } from '../src/connector/block-key.ts';
import { blockIndex } from '../src/core/ids.ts';
import type { CacheEventLog } from '../src/kv/cache-events.ts';
import type { Scheduler } from '../src/scheduler/scheduler.ts';

/** The recorded changes of the prefix cache rebuild its content. */
export class EventChecker {
  readonly #scheduler: Pick<Scheduler, 'inspector' | 'resetPrefixCache'>;
  readonly #log: CacheEventLog;
  readonly #keys = new Set<string>();

  constructor(scheduler: Pick<Scheduler, 'inspector' | 'resetPrefixCache' | 'recordCacheEvents'>) {
    this.#scheduler = scheduler;
    this.#log = scheduler.recordCacheEvents();
  }

  /** At the end of a world: no request has blocks, so none stays. */
  checkReset(): void {
    this.check();
    const left = this.#scheduler.resetPrefixCache();
    assert(left === 0, `${left} blocks stay cached after a reset, but nothing uses them`);
    this.check();
  }

  check(): void {
    const { inspector } = this.#scheduler;
    for (const event of this.#log.take()) {
      if (event.kind === 'cleared') {
        this.#keys.clear();
        continue;
      }
      const key = blockKey(event.group, event.digest, blockIndex(0));
      if (event.kind === 'removed') {
        assert(this.#keys.delete(key), `an event removes ${key}, which no event has stored`);
        continue;
      }
      assert(!this.#keys.has(key), `two events store ${key}`);
      const { blockSize } = inspector.spec.groups[event.group]!;
      assert(
        event.tokens.length === blockSize,
        `an event has ${event.tokens.length} tokens for a block of ${blockSize}`,
      );
      this.#keys.add(key);
    }
    const cached = inspector.cachedKeys();
    assert(cached.size === this.#keys.size, `events give ${this.#keys.size} keys, and ${cached.size} are cached`);
    for (const key of cached) assert(this.#keys.has(key), `${key} is cached, but no event has stored it`);
  }
}
