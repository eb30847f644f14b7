/**
 * Runs in Wine: starts Kvasir as a program of Windows would, and stops it when a file named `stop` appears. Output of Wine's programs goes to
 * files, because Linux's pipes are no files for them.
 *
 *   node.exe supervise.mjs FOLDER COMMAND ARGUMENT ...
 */
import { fork } from 'node:child_process';
import { existsSync, openSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const [folder, command, ...args] = process.argv.slice(2);
const [out, error] = ['stdout', 'stderr'].map((name) => openSync(join(folder, name), 'w'));
const child = fork(command, args, { stdio: ['ignore', out, error, 'ipc'] });
const poll = setInterval(() => {
  if (existsSync(join(folder, 'stop'))) child.send('shutdown', () => clearInterval(poll));
}, 200);
child.on('exit', (code, signal) => {
  writeFileSync(join(folder, 'exit'), String(code ?? signal));
  process.exit();
});
