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
});
