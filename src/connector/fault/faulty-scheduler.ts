import { setMaxListeners } from 'node:events';
import type { Timer } from '../../base/timers.ts';
import type { RequestId } from '../../core/ids.ts';
import type { BlockKey } from '../block-key.ts';
import type { ConnectorRequest, SchedulerConnector, SchedulerConnectorContext } from '../connector.ts';
import { FaultInjector, nothingStored } from './fault-injector.ts';
import type { FaultPlan } from './fault-rules.ts';

/** Blocks without an answer by then are missing. */
const lookupTimeoutMs = 1_000;
/** The engine waits a little longer, so that it gets the blocks that were found in time. */
const graceMs = 100;

/** The faults of one look-up: from the first question for a request until its admission. */
interface Lookup {
  readonly controller: AbortController;
  readonly timer: Timer;
  readonly deadlineMs: number;
  /** Blocks with a fault. Undefined: the look-up stalls. */
  lost: ReadonlySet<BlockKey> | undefined;
}

/**
 * The scheduler side of a connector that has no tier to wrap, with faults of look-ups (`on: has`). Found blocks with a fault
 * are left out of the answer. While the look-up of a block is slow or hangs, the answer is `askLater`. All other calls go to
 * the connector.
 */
export function faultyScheduler(
  side: SchedulerConnector,
  { clock, timers, wake, identities, event }: SchedulerConnectorContext,
  plan: FaultPlan,
): SchedulerConnector {
  const injector = new FaultInjector(nothingStored, { identity: identities[0]!, timers, event, plan });
  const lookups = new Map<RequestId, Lookup>();

  function begin({ id, wanted }: ConnectorRequest): Lookup {
    const controller = new AbortController();
    // Each block that stalls listens for the abort; Node warns of more than ten listeners.
    setMaxListeners(0, controller.signal);
    const timer = timers.after(lookupTimeoutMs, () => controller.abort(new Error('the look-up has timed out')));
    const deadlineMs = clock.nowMs() + lookupTimeoutMs + graceMs;
    const lookup: Lookup = { controller, timer, deadlineMs, lost: undefined };
    lookups.set(id, lookup);
    const indexOf = new Map(wanted.map(({ key, index }) => [key, index]));
    const keys = [...indexOf.keys()];
    const contextOf = (key: BlockKey) => ({ requestId: id, index: indexOf.get(key)! });
    void injector.has(keys, controller.signal, contextOf).then((answers) => {
      timer.cancel();
      lookup.lost = new Set(keys.filter((_, i) => answers[i] !== true));
      if (lookups.get(id) === lookup) wake();
    });
    return lookup;
  }

  function end(id: RequestId): void {
    const lookup = lookups.get(id);
    lookups.delete(id);
    lookup?.timer.cancel();
    lookup?.controller.abort(new Error('the look-up is over'));
  }

  return withMethods(side, {
    getMatchedBlocks(request) {
      const answer = side.getMatchedBlocks(request);
      const { lost, deadlineMs } = lookups.get(request.id) ?? begin(request);
      if (lost === undefined)
        return {
          kind: 'askLater',
          deadlineMs: answer.kind === 'found' ? deadlineMs : Math.max(deadlineMs, answer.deadlineMs),
        };
      if (answer.kind === 'askLater') return answer;
      return { ...answer, blocks: answer.blocks.filter(({ key }) => !lost.has(key)) };
    },
    updateStateAfterAlloc(request, load, valid) {
      end(request.id);
      side.updateStateAfterAlloc(request, load, valid);
    },
    requestFinished(request, valid) {
      end(request.id);
      return side.requestFinished(request, valid);
    },
    counters: () => ({ ...side.counters?.(), ...injector.counters() }),
    async close() {
      for (const id of [...lookups.keys()]) end(id);
      await Promise.all([side.close(), injector.close()]);
    },
  });
}

/** `target` with some methods replaced. */
function withMethods<Target extends object>(target: Target, methods: Partial<Target>): Target {
  return new Proxy(target, {
    get(_, name) {
      const value: unknown = Reflect.get(methods, name) ?? Reflect.get(target, name, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}
