import { readFileSync, statSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';

/** How the hub is reached, and where models are kept. The variables are those of Hugging Face's own programs. */
export interface HubSettings {
  /** Without a slash at the end. */
  readonly endpoint: string;
  readonly token: string | undefined;
  /** Shared with Hugging Face's programs and others that use its layout: see `hub-cache.ts`. */
  readonly cacheFolder: string;
  readonly isOffline: boolean;
  /** Whether hubs on other machines may have http addresses. Default false. */
  readonly isHttpAllowed?: boolean;
}

/** Reads HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH, HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME, HF_HUB_OFFLINE and KVASIR_HUB_ALLOW_HTTP. */
export function hubSettings(env: NodeJS.ProcessEnv = process.env): HubSettings {
  const home = env.HF_HOME || join(env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'huggingface');
  return {
    endpoint: (env.HF_ENDPOINT || 'https://huggingface.co').replace(/\/+$/, ''),
    token: env.HF_TOKEN?.trim() || savedToken(env.HF_TOKEN_PATH || join(home, 'token')),
    cacheFolder: env.HF_HUB_CACHE || join(home, 'hub'),
    isOffline: isOn(env.HF_HUB_OFFLINE),
    isHttpAllowed: isOn(env.KVASIR_HUB_ALLOW_HTTP),
  };
}

const isOn = (value: string | undefined): boolean => /^(1|true|yes|on)$/i.test(value ?? '');

/** The token that `hf auth login` saves. */
function savedToken(path: string): string | undefined {
  try {
    // A pipe would block the start.
    return statSync(path).isFile() ? readFileSync(path, 'utf8').trim() || undefined : undefined;
  } catch {
    return undefined;
  }
}
