import type { AsyncEngine } from '../../engine/contract.ts';
import { StepDeadlines, WorkerWatch } from '../../worker/worker-watch.ts';

/** How often the process looks at its engine. */
const lookMs = 500;

interface EngineWatchOptions {
  /** `--worker-timeout`; Infinity: a step may take any time. */
  readonly timeoutMs: number;
  /** Requests in the background have no connection, so the parent does not know of them. Called when it changes. */
  onBusy(isBusy: boolean): void;
  /** The engine computes nothing any more. Called once. */
  onBroken(reason: string): void;
}

/** Watches the engine of this process: whether it has work, and whether it can still do it. */
export function watchEngine(engine: AsyncEngine, { timeoutMs, onBusy, onBroken }: EngineWatchOptions): Disposable {
  let wasBusy = false;
  let isComputing = false;
  let computedCost = 0;
  const deadlines = new StepDeadlines(timeoutMs);
  // This process answers itself: only an endless step remains to be found. Ranks in processes have watches of their own.
  const watch = new WorkerWatch({
    timeoutMs,
    deadlines,
    ping: () => watch.answered(isComputing && engine.health().status !== 'recovering'),
    onStuck: (reason) => broken(`its process ${reason}`),
  });
  watch.started();
  const stopObserving = engine.observe({
    stepBegan: (cost) => {
      isComputing = true;
      computedCost = cost;
      watch.stepBegins(cost);
    },
    stepEnded: ({ executeMs }) => {
      if (!isComputing) return;
      isComputing = false;
      watch.stepEnded();
      deadlines.learn(computedCost, executeMs);
    },
  });
  const timer = setInterval(() => {
    const { status, message = '' } = engine.health();
    if (status === 'broken') return broken(message);
    const { running, waiting, waitingForRemoteKv } = engine.stats();
    const isBusy = running + waiting + waitingForRemoteKv > 0;
    if (isBusy !== wasBusy) onBusy(isBusy);
    wasBusy = isBusy;
  }, lookMs).unref();
  const stop = (): void => {
    clearInterval(timer);
    watch.stop();
    stopObserving();
  };
  const broken = (reason: string): void => {
    stop();
    onBroken(reason);
  };
  return { [Symbol.dispose]: stop };
}
