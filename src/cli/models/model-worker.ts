import { EventEmitter } from 'node:events';
import { Command } from 'commander';
import type { AsyncEngine } from '../../engine/contract.ts';
import { dieWithParent } from '../../ggml/libc.ts';
import type { KeptResponse } from '../../server/apis/responses/response-keeper.ts';
import { eventLog } from '../../server/http/event-log.ts';
import { logOf } from '../../server/http/log-format.ts';
import { encodeError } from '../../worker/error-codec.ts';
import type { CliContext, ExitCode } from '../context.ts';
import { aborted, Interruption, orInterrupted } from '../interrupt.ts';
import { LoadWatch } from '../load-watch.ts';
import { openTraces } from '../otlp-traces.ts';
import { openEngine, readSettings, serverOptionsOf } from '../serve.ts';
import { ServerEnd } from '../server-end.ts';
import { watchEngine } from './engine-watch.ts';
import { ParentKeeper } from './parent-keeper.ts';
import { type FromModel, type ModelSetup, type ToModel, workerTimeoutMs } from './worker-messages.ts';

/** After the engine broke, the time in which clients get their errors. */
const brokenEndMs = 1000;
const silent = { write: () => undefined };

/** The process of one model of `kvasir serve`, which starts it. It ends with its parent at the latest. */
export function modelWorkerCommand(context: CliContext, exit: (code: ExitCode) => void): Command {
  return new Command('model-worker').argument('<name>').action(async () => {
    const killed = (): void => void process.kill(process.pid, 'SIGKILL');
    // The parent drains, and then stops its processes.
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGBREAK', 'SIGHUP'] as const) process.on(signal, () => undefined);
    process.on('disconnect', killed);
    dieWithParent();
    if (process.connected !== true) killed();
    const signals = new EventEmitter();
    let isStopped = false;
    let keeper: ParentKeeper | undefined;
    const setup = await new Promise<KeptSetup | undefined>((resolve) => {
      // One listener from start to end: a message without a listener is lost.
      process.on('message', (message: ToModel) => {
        if (message.kind === 'load') {
          const onStored = (tenant: string | undefined, response: KeptResponse): void =>
            void send({ kind: 'stored', tenant, response });
          keeper = new ParentKeeper(message.setup.responses, onStored);
          resolve({ ...message.setup, keeper });
        } else if (message.kind === 'ping') void send({ kind: 'pong' });
        else if (message.kind === 'forget') keeper?.forget(message.tenant, message.id);
        else {
          isStopped = true;
          resolve(undefined);
          signals.emit('SIGTERM');
        }
      });
    });
    // `stop` may have come after `load`, before `serveModel` listens.
    exit(setup === undefined || isStopped ? 0 : await serveModel(setup, { ...context, signals }));
  });
}

interface KeptSetup extends ModelSetup {
  readonly keeper: ParentKeeper;
}

async function serveModel(setup: KeptSetup, context: CliContext): Promise<ExitCode> {
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
  const options = { ...serverOptionsOf(flags), version: context.version, logDestination, responseKeeper: setup.keeper };
  const server = new Server({ loadStatus: () => watch.status() }, options);
  let engine: AsyncEngine | undefined;
  try {
    await server.listenAt(socketPath);
    const settings = await readSettings(flags);
    engine = await orInterrupted(openEngine(path, flags, context, { settings, watch, onEvent, signal }), signal);
    if (engine === undefined) return interruption.exitCode;
    await traces?.follow(engine);
    let onBroken: (reason: string) => void = () => undefined;
    const broken = new Promise<string>((resolve) => {
      onBroken = resolve;
    });
    const onBusy = (isBusy: boolean): void => void send({ kind: 'busy', isBusy });
    using _watch = watchEngine(engine, { timeoutMs: workerTimeoutMs(flags), onBusy, onBroken });
    await server.serve(engine);
    const { name: served, aliases: others = [], maxModelLen, architecture } = engine.model;
    void send({ kind: 'ready', facts: { names: [served, ...others], maxModelLen, architecture } });
    const reason = await Promise.race([aborted(signal), broken]);
    if (reason !== undefined) {
      await send({ kind: 'broken', reason });
      await server.drain(brokenEndMs);
      return 1;
    }
    return (await end.drain(server)) ? 0 : interruption.exitCode;
  } catch (error) {
    await send({ kind: 'failed', error: encodeError(error) });
    return 1;
  } finally {
    await server.close();
    await Promise.all([engine?.close(), traces?.close(end.tracesMs)]);
  }
}

/** Resolves when the message is sent. */
function send(message: FromModel): Promise<void> {
  return new Promise((resolve) => {
    process.send?.(message, undefined, undefined, () => resolve());
  });
}
