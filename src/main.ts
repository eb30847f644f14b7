#!/usr/bin/env node
/** The `kvasir` command: hands the process to the CLI and its exit code back to the shell. */
import { buffer } from 'node:stream/consumers';
import { inspect } from 'node:util';
import { killChildren } from './base/child-processes.ts';
import type { CliContext, ExitCode } from './cli/context.ts';
import { packageVersion } from './cli/package-files.ts';
import { type CommandFactory, runCli } from './cli/run-cli.ts';
import type { EngineOptions } from './engine/options.ts';
import { exitAtOnce } from './ggml/libc.ts';

// Modules are loaded when they are needed: to load all of them takes longer than to start Node.
const openMeasuredEngine = async (options: EngineOptions) => (await import('./compose.ts')).openMeasuredEngine(options);
const commands: Readonly<Record<string, () => Promise<CommandFactory>>> = {
  serve: async () => (await import('./cli/serve.ts')).serveCommand,
  generate: async () => (await import('./cli/generate.ts')).generateCommand,
  bench: async () => (await import('../bench/command.ts')).benchCommand(openMeasuredEngine),
  demo: async () => (await import('./cli/demo/command.ts')).demoCommand,
  sim: async () => (await import('./cli/sim.ts')).simCommand,
};

const context: CliContext = {
  version: packageVersion(),
  createEngine: async (options) => (await import('./compose.ts')).createEngine(options),
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

const argv = process.argv.slice(2);
const code = await runCli(argv, context, await commandsFor(argv));
await Promise.all([written(process.stdout), written(process.stderr)]);
exitNow(code);

/** The command that the line begins with; none for the version; all of them for help and for lines that name none. */
async function commandsFor([name = '']: readonly string[]): Promise<CommandFactory[]> {
  if (name === '--version' || name === '-V') return [];
  const named = Object.hasOwn(commands, name) ? commands[name] : undefined;
  return Promise.all((named === undefined ? Object.values(commands) : [named]).map((load) => load()));
}

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
