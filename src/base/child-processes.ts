import type { ChildProcess } from 'node:child_process';

const children = new Set<ChildProcess>();

/** Registers a child process that must not outlive this process. */
export function trackChild(child: ChildProcess): void {
  children.add(child);
  child.once('exit', () => children.delete(child));
}

/**
 * Sends SIGKILL to every registered child, because SIGKILL also ends a stopped process.
 */
export function killChildren(): void {
  for (const child of children) child.kill('SIGKILL');
}
