import { Readable } from 'node:stream';
import { benchCommand } from '../../bench/command.ts';
import type { CliContext } from '../../src/cli/context.ts';
import { runCli } from '../../src/cli/run-cli.ts';
import { openMeasuredEngine } from '../../src/compose.ts';

/** Runs `kvasir bench ...` in this process, with real engines. */
export async function runBench(...args: readonly string[]) {
  let out = '';
  let err = '';
  const context: CliContext = {
    version: '0',
    createEngine: async (options) => (await openMeasuredEngine(options)).engine,
    stdout: { write: (text) => (out += text) },
    stderr: { write: (text) => (err += text) },
    stdin: Readable.from([]),
    signals: process,
    exitNow: () => undefined,
  };
  const code = await runCli(['bench', ...args], context, [benchCommand(openMeasuredEngine)]);
  return { code, out, err };
}
