import { realpathSync } from 'node:fs';

/**
 * To call before a thread or a process is started: neither starts in a folder that was removed, for example the folder of a release
 * that was replaced while the server runs. The process then moves to the root folder. Paths relative to the removed folder are gone
 * in any case.
 */
export function leaveRemovedFolder(): void {
  try {
    realpathSync.native('.');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') process.chdir('/');
  }
}
