import { EventEmitter } from 'node:events';
import { Readable } from 'node:stream';
import type { CliContext } from '../../src/cli/context.ts';
import { runCli } from '../../src/cli/run-cli.ts';
import { serveCommand } from '../../src/cli/serve.ts';
import type { AsyncEngine } from '../../src/engine/contract.ts';
import type { EngineOptions } from '../../src/engine/options.ts';
import { LetterEngine, type LetterEngineOptions } from './letter-engine.ts';
import { until } from './until.ts';

/**
 * `kvasir serve` in this process, on real sockets, with signals of the test. The test decides when its model is loaded:
 * `loaded.resolve(engine)`. `close` ends it.
 */
export async function serveHere(
  flags: readonly string[] = [],
  engineOptions: LetterEngineOptions = {},
  { isTTY, ...context }: Pick<CliContext, 'hasTerminal'> & { readonly isTTY?: boolean } = {},
) {
  const engine = new LetterEngine(engineOptions);
  const signals = new EventEmitter();
  let stderr = '';
  let options: EngineOptions | undefined;
  let resolve: (engine: AsyncEngine) => void = () => undefined;
  let reject: (error: Error) => void = () => undefined;
  const promise = new Promise<AsyncEngine>((...settle) => {
    [resolve, reject] = settle;
  });
  let ended: number | undefined;
  const code = runCli(
    ['serve', '--port', '0', 'm.gguf', ...flags],
    {
      version: '1.2.3',
      createEngine: (given) => {
        options = given;
        return promise;
      },
      stdout: { write: () => undefined },
      stderr: { write: (text) => (stderr += text), isTTY: isTTY === true },
      stdin: Readable.from([]),
      signals,
      exitNow: () => undefined,
      ...context,
    },
    [serveCommand],
  ).then((given) => (ended = given));
  await until(() => options !== undefined || ended !== undefined);
  if (options === undefined) throw new Error(`the server ended with ${ended}: ${stderr}`);
  const origin = /listening on (https?:\S+)/.exec(stderr)![1]!;
  const close = (): Promise<number> => {
    resolve(engine);
    signals.emit('SIGTERM');
    return code;
  };
  return { origin, code, signals, loaded: { resolve, reject }, engine, options, stderr: () => stderr, close };
}
