import { EventEmitter, once } from 'node:events';
import { Command } from 'commander';
import type { AsyncEngine } from '../../engine/contract.ts';
import { dieWithParent } from '../../ggml/libc.ts';
import { eventLog } from '../../server/event-log.ts';
import { logOf } from '../../server/log-format.ts';
import { encodeError } from '../../worker/error-codec.ts';
import type { CliContext, ExitCode } from '../context.ts';
import { aborted, Interruption, orInterrupted } from '../interrupt.ts';
import { LoadWatch } from '../load-watch.ts';
import { openTraces } from '../otlp-traces.ts';
import { openEngine, readSettings, serverOptionsOf } from '../serve.ts';
import { ServerEnd } from '../server-end.ts';
import type { FromModel, ModelSetup, ToModel } from './worker-messages.ts';

/** How often the process looks whether its engine has work. */
const lookMs = 500;
const silent = { write: () => undefined };

/** The process of one model of `kvasir serve`, which starts it. It ends with its parent at the latest. */
export function modelWorkerCommand(context: CliContext, exit: (code: ExitCode) => void): Command {
  return new Command('model-worker').argument('<name>').action(async () => {
    const killed = (): void => void process.kill(process.pid, 'SIGKILL');
    // The parent drains, and then stops its processes.
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => undefined);
    process.on('disconnect', killed);
    dieWithParent();
    if (process.connected !== true) killed();
    const signals = new EventEmitter();
    const [first] = (await once(process, 'message')) as [ToModel];
    if (first.kind === 'stop') return exit(0);
    process.on('message', (message: ToModel) => {
      if (message.kind === 'stop') signals.emit('SIGTERM');
    });
    exit(await serveModel(first.setup, { ...context, signals }));
  });
}

async function serveModel(setup: ModelSetup, context: CliContext): Promise<ExitCode> {
  const { name, aliases, path, socketPath } = setup;
  const flags = { ...setup.flags, servedModelName: [name, ...aliases] };
  const end = new ServerEnd(flags.shutdownTimeout, silent);
  using interruption = new Interruption(context, end.limits);
  const { signal } = interruption;
  const log = logOf(context.stderr, flags.logFormat);
  const named = `{"model":${JSON.stringify(name)},`;
  const logDestination = { write: (line: string) => void log.write(line.replace('{', () => named)) };
  const onEvent = eventLog(logDestination, flags.logLevel);
  const watch = new LoadWatch(name, silent, (status) => void send({ kind: 'progress', status }));
  const { Server } = await import('../../server/server.ts');
  const traces = await openTraces(flags.otlpTracesEndpoint, context.version, onEvent);
  const options = { ...serverOptionsOf(flags), version: context.version, logDestination };
  const server = new Server({ loadStatus: () => watch.status() }, options);
  let engine: AsyncEngine | undefined;
  try {
    await server.listenAt(socketPath);
    const settings = await readSettings(flags);
    engine = await orInterrupted(openEngine(path, flags, context, { settings, watch, onEvent, signal }), signal);
    if (engine === undefined) return interruption.exitCode;
    await traces?.follow(engine);
    await server.serve(engine);
    using _look = reportWork(engine);
    const { name: served, aliases: others = [], maxModelLen, architecture } = engine.model;
    void send({ kind: 'ready', facts: { names: [served, ...others], maxModelLen, architecture } });
    await aborted(signal);
    return (await end.drain(server)) ? 0 : interruption.exitCode;
  } catch (error) {
    await send({ kind: 'failed', error: encodeError(error) });
    return 1;
  } finally {
    await server.close();
    await Promise.all([engine?.close(), traces?.close(end.tracesMs)]);
  }
}

/** Requests in the background have no connection, so the parent does not know of them. */
function reportWork(engine: AsyncEngine): Disposable {
  let wasBusy = false;
  const timer = setInterval(() => {
    const { running, waiting, waitingForRemoteKv } = engine.stats();
    const isBusy = running + waiting + waitingForRemoteKv > 0;
    if (isBusy !== wasBusy) void send({ kind: 'busy', isBusy });
    wasBusy = isBusy;
  }, lookMs).unref();
  return { [Symbol.dispose]: () => clearInterval(timer) };
}

/** Resolves when the message is sent. */
function send(message: FromModel): Promise<void> {
  return new Promise((resolve) => {
    process.send?.(message, undefined, undefined, () => resolve());
  });
}
