import { execFile, spawnSync } from 'node:child_process';
import { promisify } from 'node:util';

/** The C compiler of the release: clang 19 with the headers of all targets. */
export const zigVersion = '0.14.1';

export const howToGetZig = `Install Zig ${zigVersion}: pip install ziglang==${zigVersion}, or name its command in ZIG.`;

/** The command of Zig, with its first arguments. */
export type ZigCommand = readonly [command: string, ...before: string[]];

/** `ZIG`, else `zig`, else Python's package `ziglang`: the first that has the pinned version. */
export function findZig(): ZigCommand | undefined {
  const demanded = process.env.ZIG?.trim();
  const candidates: ZigCommand[] = demanded
    ? [demanded.split(/\s+/) as [string, ...string[]]]
    : [['zig'], ['python3', '-m', 'ziglang'], ['python', '-m', 'ziglang']];
  return candidates.find(([command, ...before]) => {
    const { status, stdout } = spawnSync(command, [...before, 'version'], { encoding: 'utf8' });
    return status === 0 && stdout.trim() === zigVersion;
  });
}

const run = promisify(execFile);

/** Runs Zig; rejects with its messages. Zig keeps what it has compiled in `cacheFolder`. */
export async function runZig(zig: ZigCommand, given: readonly string[], cacheFolder: string): Promise<string> {
  const [command, ...before] = zig;
  const env = { ...process.env, ZIG_GLOBAL_CACHE_DIR: cacheFolder, ZIG_LOCAL_CACHE_DIR: cacheFolder };
  const { stdout } = await run(command, [...before, ...given], { env, maxBuffer: 64 << 20 });
  return stdout;
}
