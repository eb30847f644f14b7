#!/usr/bin/env node
/** The `kvasir` command: runs the CLI and ends the process with its exit code. */
import { inspect } from 'node:util';
import { killChildren } from './base/child-processes.ts';
import { actAsInit } from './base/init-process.ts';
import { keepCompiledModules, writeCompiledModules } from './base/module-cache.ts';
import { packageVersion } from './base/package-files.ts';
import type { CliContext, ExitCode } from './cli/context.ts';
import { type CommandFactory, runCli } from './cli/run-cli.ts';
import type { EngineOptions } from './engine/options.ts';
import { exitAtOnce } from './ggml/libc.ts';

keepCompiledModules();
// Modules are imported when they are needed, because importing all of them takes longer than starting Node.
const openMeasuredEngine = async (options: EngineOptions) => (await import('./compose.ts')).openMeasuredEngine(options);
const commands: Readonly<Record<string, () => Promise<CommandFactory>>> = {
  serve: async () => (await import('./cli/serve.ts')).serveCommand,
  generate: async () => (await import('./cli/generate.ts')).generateCommand,
  bench: async () => (await import('../bench/command.ts')).benchCommand(openMeasuredEngine),
  chat: async () => (await import('./cli/chat/command.ts')).chatCommand,
  demo: async () => (await import('./cli/demo/command.ts')).demoCommand,
  pull: async () => (await import('./cli/hub/pull.ts')).pullCommand,
  list: async () => (await import('./cli/hub/list.ts')).listCommand,
  rm: async () => (await import('./cli/hub/remove.ts')).removeCommand,
  tiers: async () => (await import('./cli/tiers.ts')).tiersCommand,
  doctor: async () => (await import('./cli/doctor/command.ts')).doctorCommand,
  size: async () => (await import('./cli/size/command.ts')).sizeCommand,
  sim: async () => (await import('./cli/sim.ts')).simCommand,
};

const context: CliContext = {
  version: packageVersion(),
  checkEngineOptions: async (options, checksModel) =>
    (await import('./compose-check.ts')).checkEngineOptions(options, checksModel),
  shareOnGpu: async (...args) => (await import('./compose-size.ts')).shareOnGpu(...args),
  createEngine: async (options) => (await import('./compose.ts')).createEngine(options),
  stdout: process.stdout,
  stderr: process.stderr,
  stdin: process.stdin,
  ...(process.stdin.isTTY && process.stdout.isTTY
    ? { terminal: { input: process.stdin, output: process.stdout } }
    : {}),
  hasTerminal: [process.stdin, process.stdout, process.stderr].some(({ isTTY }) => isTTY === true),
  signals: process,
  exitNow,
};

// A reader such as `head` has closed the pipe: the command ends without an error.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') exitNow(0);
  process.stderr.write(`error: The output cannot be written: ${error.message}\n`);
  exitNow(1);
});
// The reader of the log has ended, the terminal was closed, or the disk is full: a server must go on without its log.
process.stderr.on('error', () => undefined);
// A bug must end the process even if a thread hangs, so that a supervisor can start it again.
process.on('uncaughtException', (error) => {
  process.stderr.write(`internal error: ${inspect(error)}\n`);
  exitNow(1);
});

// Windows has no SIGTERM that a process can handle. A program that has a channel to this process sends a message instead, as PM2 does there.
if (process.argv[2] !== 'model-worker')
  process.on('message', (message) => void (message === 'shutdown' && process.emit('SIGTERM', 'SIGTERM')));

if (process.pid === 1) actAsInit((signal) => exitNow(signal === 'SIGINT' ? 130 : 143));

const argv = process.argv.slice(2);
const code = await runCli(argv, context, await commandsFor(argv));
await Promise.all([written(process.stdout), written(process.stderr)]);
// The error of a file, such as on a full disk, comes after its write.
await new Promise((resolve) => setImmediate(resolve));
exitNow(code);

/** The process of one model, which `kvasir serve` starts: it is no command for people. */
async function modelWorker(): Promise<CommandFactory[]> {
  return [(await import('./cli/models/model-worker.ts')).modelWorkerCommand];
}

/** The command that the line names. `--version` needs no command; help and lines without a command need all. */
async function commandsFor([name = '']: readonly string[]): Promise<CommandFactory[]> {
  if (name === '--version' || name === '-V') return [];
  if (name === 'model-worker') return modelWorker();
  const named = Object.hasOwn(commands, name) ? commands[name] : undefined;
  return Promise.all((named === undefined ? Object.values(commands) : [named]).map((load) => load()));
}

/** Resolves when a slow reader has read all output. */
function written(stream: NodeJS.WriteStream): Promise<void> {
  if (stream.writableLength === 0 || stream.destroyed) return Promise.resolve();
  return new Promise((resolve) => stream.write('', () => resolve()));
}

/**
 * Does not use `process.exit`, which waits for every thread: a stuck thread would keep the process for ever. Node's
 * profilers write their files in `process.exit`, so it is used with them.
 */
function exitNow(exitCode: ExitCode): void {
  killChildren();
  if (isProfiled()) process.exit(exitCode);
  writeCompiledModules();
  exitAtOnce(exitCode);
}

function isProfiled(): boolean {
  const flags = [...process.execArgv, process.env.NODE_OPTIONS ?? ''].join(' ');
  return process.env.NODE_V8_COVERAGE !== undefined || /--(cpu-prof|heap-prof|prof|trace-event)/.test(flags);
}
