#!/usr/bin/env node
/** The `kvasir` command: hands the process to the CLI and its exit code back to the shell. */
import { buffer } from 'node:stream/consumers';
import { benchCommand } from './cli/bench/command.ts';
import type { CliContext } from './cli/context.ts';
import { demoCommand } from './cli/demo/command.ts';
import { generateCommand } from './cli/generate.ts';
import { packageVersion } from './cli/package-files.ts';
import { runCli } from './cli/run-cli.ts';
import { serveCommand } from './cli/serve.ts';
import { simCommand } from './cli/sim.ts';
import { createEngine, openMeasuredEngine } from './compose.ts';

const context: CliContext = {
  version: packageVersion(),
  createEngine,
  stdout: process.stdout,
  stderr: process.stderr,
  readStdin: () => buffer(process.stdin),
  signals: process,
};

// A reader like `head` has had enough and closed the pipe: that is no fault, and nobody is left to write for.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
  process.exit(0);
});

const commands = [serveCommand, generateCommand, benchCommand(openMeasuredEngine), demoCommand, simCommand];
process.exitCode = await runCli(process.argv.slice(2), context, commands);
// Interrupted while a model was loading: a native call that cannot be stopped must not keep the process.
if (process.exitCode === 130) process.exit();
