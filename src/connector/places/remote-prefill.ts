import { describeValue, shorten } from '../../base/describe-value.ts';
import type { FieldReader } from '../../base/field-reader.ts';
import type { JsonObject, JsonValue } from '../../base/json.ts';
import type { Timer } from '../../base/timers.ts';
import type { BlockPlace } from '../../core/block-place.ts';
import type { BlockKey } from '../block-key.ts';
import type { ConnectorRequest, KvBlock, SchedulerConnectorContext } from '../connector.ts';
import { CircuitBreaker, circuitBreakerDefaults } from '../tier/circuit-breaker.ts';
import { modelFolder } from '../tier/identity.ts';
import type { RunningLookup } from './tier-lookups.ts';

/** The blocks that a prefill server has stored, or is about to store, for one request. */
export interface RemotePrefill {
  isPromised(place: BlockPlace): boolean;
  /** Blocks that are not found by then are computed. */
  readonly untilMs: number;
}

export interface PromisedBlocks {
  readonly keys: ReadonlySet<BlockKey>;
  readonly untilMs: number;
}

/** One attempt to look up some blocks. Calls `done` as `TierLookups.start` does. An answer of `false`: the block is missing. */
export type StartLookup<Answer> = (
  keys: readonly BlockKey[],
  done: (answers: readonly Answer[]) => void,
) => RunningLookup | undefined;

/** The pauses between two look-ups of a block that is not stored yet. */
const pauseMinMs = 10;
const pauseMaxMs = 200;
/** From the end of the wait to the deadline of the look-up, for a machine that is busy. */
const slackMs = 200;

/**
 * The decode side of prefill and decode on different servers. The request has what the prefill server answered
 * (`remote-decode.ts`), and that server may still be storing. So a look-up that misses a promised block is repeated, until
 * the block is there or a deadline has passed. The text does not depend on it.
 *
 * If five requests in a row waited in vain, the next ones do not wait for a while: the prefill server cannot store.
 */
export class RemotePrefills {
  readonly #context: Pick<SchedulerConnectorContext, 'clock' | 'timers' | 'event'>;
  readonly #identity: string;
  readonly #timeoutMs: number | undefined;
  readonly #breaker: CircuitBreaker;
  readonly #warned = new Set<string>();
  #waits = 0;
  #waitsInVain = 0;

  /** `timeoutMs`: of the wait for the blocks of a request. Default: as for its load. */
  constructor(context: SchedulerConnectorContext, timeoutMs: number | undefined) {
    this.#context = context;
    this.#identity = modelFolder(context.identities[0]!);
    this.#timeoutMs = timeoutMs;
    this.#breaker = new CircuitBreaker(context.clock, circuitBreakerDefaults);
  }

  /**
   * Once per request, when the request arrives: the wait begins. Undefined: nothing was promised that this engine could
   * load. A wrong value is ignored with a warning, because a request must not fail because of a hint.
   */
  read({ kvTransferParams: params, tokenCount }: ConnectorRequest): RemotePrefill | undefined {
    if (params?.do_remote_prefill !== true) return undefined;
    const { remote_block_ids: ids, remote_kv_identity: identity } = params;
    if (identity !== undefined && identity !== null && identity !== this.#identity) {
      this.#warnOnce(
        `${serverOf(params)} stored KV as ${describeValue(identity)}, and this server uses ${this.#identity}: the prompt is computed again. Start both with the same model file, KV type, block size and numerics`,
      );
      return undefined;
    }
    if (ids === undefined || ids === null) return undefined;
    if (!isListOfIndexes(ids)) {
      this.#warnOnce(
        'kv_transfer_params.remote_block_ids is ignored: it must be an array of arrays of whole numbers, as the prefill server sent it',
      );
      return undefined;
    }
    const promised = ids.map((indexes) => new Set(indexes));
    const timeoutMs = this.#timeoutMs ?? Math.min(30_000, 2_000 + (100 * tokenCount) / 1024);
    return {
      isPromised: ({ group, index }) => promised[group]?.has(index) === true,
      untilMs: this.#context.clock.nowMs() + timeoutMs,
    };
  }

  /** The blocks among these that the prefill server promised and that are worth waiting for. */
  promised(prefill: RemotePrefill | undefined, wanted: readonly KvBlock[]): PromisedBlocks {
    if (prefill === undefined || this.#context.clock.nowMs() >= prefill.untilMs) return nothingPromised;
    const keys = new Set(wanted.filter((block) => prefill.isPromised(block)).map(({ key }) => key));
    return { keys, untilMs: prefill.untilMs };
  }

  /**
   * A look-up of `keys` that is repeated for those of `promised` that are missing, until `promised.untilMs`. A store without an
   * answer is not waited for.
   *
   *     look-up --> all promised blocks found, or no answer --> done
   *        ^                  | one is missing
   *        |____ pause <______|------ untilMs --------------> done, with what was found
   */
  lookUp<Answer>(
    keys: readonly BlockKey[],
    promised: PromisedBlocks,
    start: StartLookup<Answer>,
    done: (answers: readonly Answer[]) => void,
  ): RunningLookup | undefined {
    if (!keys.some((key) => promised.keys.has(key))) return start(keys, done);
    const permit = this.#breaker.tryAcquire();
    if (permit === undefined) return start(keys, done);
    const { clock, timers } = this.#context;
    const answers = new Map<BlockKey, Answer>();
    let running: RunningLookup | undefined;
    let pause: Timer | undefined;
    let end: Timer | undefined;
    let pauseMs = pauseMinMs;
    const stop = (): void => {
      end?.cancel();
      pause?.cancel();
      running?.cancel();
    };
    const finish = (): void => {
      stop();
      done(keys.map((key) => answers.get(key)!));
    };
    const waitInVain = (): void => {
      permit.fail();
      this.#waitsInVain++;
      finish();
    };
    const ask = (some: readonly BlockKey[]): RunningLookup | undefined => {
      running = start(some, (found) => {
        running = undefined;
        for (const [i, key] of some.entries()) answers.set(key, found[i]!);
        const missing = some.filter((key) => promised.keys.has(key) && answers.get(key) === false);
        if (missing.length === 0) {
          permit.succeed();
          return finish();
        }
        if (end === undefined) {
          this.#waits++;
          end = timers.after(Math.max(0, promised.untilMs - clock.nowMs()), waitInVain);
        }
        pause = timers.after(pauseMs, () => {
          pauseMs = Math.min(pauseMs * 2, pauseMaxMs);
          if (ask(missing) !== undefined) return;
          // No store can be asked.
          permit.withdraw();
          finish();
        });
      });
      return running;
    };
    const first = ask(keys);
    if (first === undefined) {
      permit.withdraw();
      return undefined;
    }
    const cancel = (): void => {
      permit.withdraw();
      stop();
    };
    return { deadlineMs: Math.max(first.deadlineMs, promised.untilMs + slackMs), cancel };
  }

  counters(): Readonly<Record<string, number>> {
    if (this.#waits === 0) return {};
    return { remotePrefillWaits: this.#waits, remotePrefillWaitsInVain: this.#waitsInVain };
  }

  #warnOnce(message: string): void {
    if (this.#warned.has(message) || this.#warned.size >= 100) return;
    this.#warned.add(message);
    this.#context.event?.(message);
  }
}

const nothingPromised: PromisedBlocks = { keys: new Set(), untilMs: -Infinity };

/** The setting of both connectors that load what a prefill server stores. 0: no wait. */
export function remotePrefillTimeoutMs(extra: FieldReader): number | undefined {
  const seconds = extra.number('remote_prefill_timeout_seconds', { min: 0 });
  return seconds === undefined ? undefined : 1000 * seconds;
}

const serverOf = ({ remote_engine_id: engine }: JsonObject): string =>
  typeof engine === 'string' ? `The prefill server ${shorten(engine)}` : 'A prefill server';

function isListOfIndexes(value: JsonValue): value is readonly (readonly number[])[] {
  return (
    Array.isArray(value) &&
    value.every(
      (indexes: unknown) =>
        Array.isArray(indexes) && indexes.every((index) => Number.isSafeInteger(index) && Number(index) >= 0),
    )
  );
}
