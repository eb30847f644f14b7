import type { ChildProcess } from 'node:child_process';

const children = new Set<ChildProcess>();

/** Registers a child process that must not outlive this process. */
export function trackChild(child: ChildProcess): void {
  children.add(child);
  child.once('exit', () => children.delete(child));
}

/**
 * Sends SIGKILL to every registered child. SIGKILL ends a stopped process too, and a stopped process does not see that its
 * parent is gone.
 */
export function killChildren(): void {
  for (const child of children) child.kill('SIGKILL');
}
