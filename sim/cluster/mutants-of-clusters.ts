import type { Change } from '../compiled-copies.ts';
import { stackMutants } from './mutants-of-stacks.ts';

/** A planted bug in a part of a cluster. */
export interface ClusterMutant extends Change {
  readonly bug: string;
  /** The failure must contain one of these: the number of an invariant, or a part of the message. */
  readonly breaks: readonly string[];
}

const ofClusters: readonly ClusterMutant[] = [
  {
    bug: 'a replica loads what the tier has under the key, and does not verify it',
    breaks: ['I2', 'I10'],
    file: 'sim/cluster/shared-tier.ts',
    find: 'return codec.decode(key, whole, stored.length, into);',
    replace: 'into.set(whole.subarray(headerBytes));\n  return undefined;',
  },
  {
    bug: 'a failed load counts as loaded',
    breaks: ['I2', 'I10'],
    file: 'src/connector/tier/tier-worker.ts',
    find: 'this.#loadFailures.push(',
    replace: 'void (',
  },
  {
    bug: 'the requests of a replica that died are not sent to another one',
    breaks: ['I8'],
    file: 'sim/cluster/router.ts',
    find: 'view.isReady = false;\n    this.#retryAll(view);',
    replace: 'view.isReady = false;\n    for (const attempt of [...view.attempts]) this.#forget(attempt);',
  },
  {
    bug: 'a request that a replica refuses is lost',
    breaks: ['I8'],
    file: 'sim/cluster/router.ts',
    find: 'attempt.view.isReady = false;\n    this.#retry(attempt);',
    replace: 'attempt.view.isReady = false;\n    this.#giveUp(attempt);',
  },
  {
    bug: 'a request that found no replica is lost',
    breaks: ['I8'],
    file: 'sim/cluster/router.ts',
    find: 'for (const routed of waiting) this.#dispatch(routed);',
    replace: '',
  },
  {
    bug: 'the client of a repeated request gets its first tokens twice',
    breaks: ['I2'],
    file: 'sim/cluster/router.ts',
    find: 'if (++attempt.received <= routed.delivered) continue;',
    replace: 'attempt.received++;',
  },
  {
    bug: 'replies of a replica that was given up are still delivered',
    breaks: ['I2'],
    file: 'sim/cluster/router.ts',
    find: 'const { replica } = attempt.view;\n    this.#forget(attempt);',
    replace:
      'const { replica } = attempt.view;\n    attempt.view.attempts.delete(attempt);\n    attempt.routed.attempt = undefined;',
  },
  {
    bug: 'a replica that starts again has the prefix cache of its last life, and other memory',
    breaks: ['I2', 'I10'],
    file: 'sim/cluster/engine-process.ts',
    find: 'this.#scheduler = new Scheduler(',
    replace: 'const of = garbage % 1000;\n    this.#scheduler = (time.kept ??= [])[of] ??= new Scheduler(',
  },
  {
    bug: 'a replica that drains ends before its requests',
    breaks: ['I8'],
    file: 'sim/cluster/replica.ts',
    find: 'this.#engine!.close();',
    replace: 'this.#engine!.kill();\n    this.#time.after(this.#options.startMs, () => this.#becomeReady());',
  },
  {
    bug: 'messages of a connection overtake each other',
    breaks: ['I2'],
    file: 'sim/cluster/link.ts',
    find: 'this.#lastMs = Math.max(sentMs + this.#delayMs * (1 + this.#prng.unit()), this.#lastMs);\n    this.#onTheWay.push(deliver);\n    this.#time.after(this.#lastMs - nowMs, () => this.#onTheWay.shift()!());',
    replace: 'this.#time.after(sentMs - nowMs + this.#delayMs * (1 + this.#prng.unit()), deliver);',
  },
  {
    bug: 'keys in the tier do not depend on the tokens before the block',
    breaks: ['I2', 'I10'],
    file: 'src/kv/block-hash.ts',
    find: 'this.#append(digest);\n      this.#setParent(digest);',
    replace: 'this.#append(digest);',
  },
  {
    bug: 'a load with blocks of two connectors is over when one of them says so',
    breaks: ['I2', 'I10'],
    file: 'src/connector/transfer/joined-ends.ts',
    find: 'if (!left.delete(side) || left.size > 0) return false;',
    replace: 'if (!left.delete(side)) return false;',
  },
  {
    bug: 'of a list of connectors, only the first reports blocks that failed',
    breaks: ['I2', 'I10'],
    file: 'src/connector/multi/multi-worker.ts',
    find: '...this.#sides.flatMap((side) => side.getBlockIdsWithLoadErrors())',
    replace: '...this.#sides[0].getBlockIdsWithLoadErrors()',
  },
  {
    bug: 'a connector of a list gets the loads of another one',
    breaks: ['I2', 'I8', 'I10'],
    file: 'src/connector/multi/multi-worker.ts',
    find: 'loads: loads.map((load) => loadOf(i, load))',
    replace: 'loads: loads.map((load) => loadOf(1 - i, load))',
  },
];

export const clusterMutants: readonly ClusterMutant[] = [...ofClusters, ...stackMutants];
