/** Programs in a console of Wine, in a terminal of tmux. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { until } from './machines.mjs';

const session = `kvasir-${process.pid}`;
const tmux = (...args) => spawnSync('tmux', ['-L', session, ...args], { encoding: 'utf8' });
const screen = () => tmux('capture-pane', '-p', '-S', '-200', '-t', session).stdout ?? '';
const isThere = (pattern) => until(`${pattern} on the screen`, () => pattern.test(screen().trimEnd()), 120_000).catch((error) => {
  throw new Error(`${error.message}:\n${screen()}`);
});

export async function inConsole(windows, home, work, flags) {
  if (tmux('-V').status !== 0) return 'not tried: no tmux';
  const main = join(windows.folder, 'node_modules', 'kvasir', 'dist', 'bundle', 'src', 'main.js');
  const program = ['wine', join(home, 'node-20.20.2', 'node.exe'), windows.path(main)];
  const open = (...args) => {
    const line = [...program, ...args].map((part) => `'${part}'`).join(' ');
    tmux('new-session', '-d', '-s', session, '-x', '120', '-y', '40', `${line}; echo "code $?"; sleep 600`);
  };
  try {
    open('chat', ...flags);
    await isThere(/> *$/);
    tmux('send-keys', '-t', session, 'Tell me a story about a fox named Max.', 'Enter');
    await isThere(/> Tell me[^\n]*\n[\s\S]*\n> *$/);
    tmux('send-keys', '-t', session, '/exit', 'Enter');
    await isThere(/code 0/);
    tmux('kill-server');
    open('serve', ...flags, '--port', '0');
    await isThere(/Press Ctrl-C/);
    tmux('send-keys', '-t', session, 'C-c');
    await isThere(/shutting down[\s\S]*code 0/);
    return 'a chat, and a server that Ctrl-C ends with 0';
  } finally {
    tmux('kill-server');
  }
}
