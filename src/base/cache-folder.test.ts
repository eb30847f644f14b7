import { homedir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { needs } from '../../test/support/needs.ts';
import { defaultCacheFolder } from './cache-folder.ts';

describe('the cache folder', needs(process.platform === 'linux', 'not Linux'), () => {
  const ofHome = join(homedir(), '.cache', 'kvasir');

  it.each([
    ['/var/cache', '/var/cache/kvasir'],
    ['', ofHome],
    ['relative/folder', ofHome],
    [undefined, ofHome],
  ])('with XDG_CACHE_HOME %j is %s', (XDG_CACHE_HOME, expected) => {
    expect(defaultCacheFolder(XDG_CACHE_HOME === undefined ? {} : { XDG_CACHE_HOME })).toBe(expected);
  });

  it.each([
    ['win32', { LOCALAPPDATA: '/C:/Users/x/AppData/Local' }, '/C:/Users/x/AppData/Local/kvasir/cache'],
    ['win32', {}, ofHome],
    ['win32', { LOCALAPPDATA: '/local', XDG_CACHE_HOME: '/var/cache' }, '/var/cache/kvasir'],
    ['darwin', {}, join(homedir(), 'Library', 'Caches', 'kvasir')],
    ['darwin', { XDG_CACHE_HOME: '/var/cache' }, '/var/cache/kvasir'],
  ] as const)('on %s with %j is %s', (platform, env, expected) => {
    expect(defaultCacheFolder(env, platform)).toBe(expected);
  });
});
