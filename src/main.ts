#!/usr/bin/env node
/** The `kvasir` command: hands the process to the CLI and its exit code back to the shell. */
import { buffer } from 'node:stream/consumers';
import { inspect } from 'node:util';
import { killChildren } from './base/child-processes.ts';
import { benchCommand } from './cli/bench/command.ts';
import type { CliContext, ExitCode } from './cli/context.ts';
import { demoCommand } from './cli/demo/command.ts';
import { generateCommand } from './cli/generate.ts';
import { packageVersion } from './cli/package-files.ts';
import { runCli } from './cli/run-cli.ts';
import { serveCommand } from './cli/serve.ts';
import { simCommand } from './cli/sim.ts';
import { createEngine, openMeasuredEngine } from './compose.ts';
import { exitAtOnce } from './ggml/libc.ts';

const context: CliContext = {
  version: packageVersion(),
  createEngine,
  stdout: process.stdout,
  stderr: process.stderr,
  readStdin: () => buffer(process.stdin),
  signals: process,
  exitNow,
};

// A reader like `head` has had enough and closed the pipe: that is no fault, and nobody is left to write for.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
  exitNow(0);
});
// A bug must end the process too when a thread hangs: a supervisor starts it again.
process.on('uncaughtException', (error) => {
  process.stderr.write(`internal error: ${inspect(error)}\n`);
  exitNow(1);
});

const commands = [serveCommand, generateCommand, benchCommand(openMeasuredEngine), demoCommand, simCommand];
const code = await runCli(process.argv.slice(2), context, commands);
await Promise.all([written(process.stdout), written(process.stderr)]);
exitNow(code);

/** Resolves when a reader that is slower than this process has taken everything. */
function written(stream: NodeJS.WriteStream): Promise<void> {
  if (stream.writableLength === 0 || stream.destroyed) return Promise.resolve();
  return new Promise((resolve) => stream.write('', () => resolve()));
}

/**
 * Not `process.exit`, which waits for every thread of the process: a thread in a system call or a kernel that does not
 * return would keep the process for ever. Node's profilers write their files in `process.exit`, so they get it.
 */
function exitNow(exitCode: ExitCode): void {
  killChildren();
  if (isProfiled()) process.exit(exitCode);
  exitAtOnce(exitCode);
}

function isProfiled(): boolean {
  const flags = [...process.execArgv, process.env.NODE_OPTIONS ?? ''].join(' ');
  return process.env.NODE_V8_COVERAGE !== undefined || /--(cpu-prof|heap-prof|prof|trace-event)/.test(flags);
}
