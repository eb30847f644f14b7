import { execFile } from 'node:child_process';
import { readdir, readFile } from 'node:fs/promises';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** The ids of a process's direct children, ascending: from `/proc` on Linux, from `pgrep` on other systems. */
export async function childProcessIds(parent: number): Promise<number[]> {
  const found = process.platform === 'linux' ? await fromProc(parent) : await fromPgrep(parent);
  return found.sort((a, b) => a - b);
}

async function fromProc(parent: number): Promise<number[]> {
  const children: number[] = [];
  for (const name of await readdir('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    // A process may end while its file is read.
    const stat = await readFile(`/proc/${name}/stat`, 'utf8').catch(() => '');
    // The command name, in parentheses, may contain spaces: the fields after it are state and parent.
    const [, parentId] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    if (Number(parentId) === parent) children.push(Number(name));
  }
  return children;
}

async function fromPgrep(parent: number): Promise<number[]> {
  const { stdout } = await run('pgrep', ['-P', String(parent)]).catch(() => ({ stdout: '' }));
  return stdout.split('\n').filter(Boolean).map(Number);
}
