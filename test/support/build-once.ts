import { spawnSync } from 'node:child_process';
import { linkSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';

const folders = ['src', 'sim', 'bench', 'scripts', 'examples', 'test/support'];
const configs = ['package.json', 'tsconfig.json', 'tsconfig.build.json'];

/**
 * Compiles the project in `root`, unless its sources are those of the last call in any process: each call of the compiler costs more than
 * a second of CPU time.
 *
 * Test files run in parallel, and no test may start the command while the compiler of another file writes it. The lock names its
 * process, so a lock that a killed run left is removed.
 */
export async function buildOnce(root: string, compile: (root: string) => void = runBuild): Promise<void> {
  const dist = join(root, 'dist');
  mkdirSync(dist, { recursive: true });
  const lock = join(dist, '.building.lock');
  const stamp = join(dist, '.built-sources');
  while (!takeLock(lock)) await wait(50);
  try {
    const sources = sourcesOf(root);
    if (readIfThere(stamp) === sources) return;
    rmSync(stamp, { force: true });
    compile(root);
    writeFileSync(stamp, sources);
  } finally {
    rmSync(lock, { force: true });
  }
}

function runBuild(root: string): void {
  const { status, stdout, stderr } = spawnSync('npm', ['run', '--silent', 'build'], { cwd: root, encoding: 'utf8' });
  if (status !== 0) throw new Error(stdout + stderr);
}

/** A line for each source: its path, size and time. */
function sourcesOf(root: string): string {
  const paths = folders.flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
      .filter((path) => path.endsWith('.ts'))
      .map((path) => join(folder, path)),
  );
  const lines = [...configs, ...paths].map((path) => {
    const { size, mtimeMs } = statSync(join(root, path));
    return `${path} ${size} ${mtimeMs}`;
  });
  return lines.join('\n');
}

function takeLock(lock: string): boolean {
  // Writes a file with another name and links it: so the lock always contains its process id.
  const mine = `${lock}-${process.pid}`;
  writeFileSync(mine, String(process.pid));
  try {
    linkSync(mine, lock);
    return true;
  } catch {
    const owner = readIfThere(lock);
    // Without a file, the lock was released meanwhile.
    if (owner !== undefined && !isAlive(Number(owner))) rmSync(lock, { force: true });
    return false;
  } finally {
    rmSync(mine);
  }
}

function isAlive(processId: number): boolean {
  try {
    return process.kill(processId, 0);
  } catch {
    return false;
  }
}

function readIfThere(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
}
