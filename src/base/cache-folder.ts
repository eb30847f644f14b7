import { homedir } from 'node:os';
import { isAbsolute, join } from 'node:path';

/**
 * The platform's folder for caches; undefined if the user has none. A relative `XDG_CACHE_HOME` is ignored, as its
 * specification requires.
 */
export function defaultCacheFolder(
  env: NodeJS.ProcessEnv = process.env,
  platform: NodeJS.Platform = process.platform,
): string | undefined {
  const { XDG_CACHE_HOME, LOCALAPPDATA } = env;
  if (XDG_CACHE_HOME && isAbsolute(XDG_CACHE_HOME)) return join(XDG_CACHE_HOME, 'kvasir');
  if (platform === 'win32' && LOCALAPPDATA) return join(LOCALAPPDATA, 'kvasir', 'cache');
  const home = homeFolder();
  if (home === undefined) return undefined;
  return platform === 'darwin' ? join(home, 'Library', 'Caches', 'kvasir') : join(home, '.cache', 'kvasir');
}

/** Undefined in a container whose user the system does not know. */
function homeFolder(): string | undefined {
  try {
    const home = homedir();
    return isAbsolute(home) ? home : undefined;
  } catch {
    return undefined;
  }
}
