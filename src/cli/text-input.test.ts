import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { needs } from '../../test/support/needs.ts';
import { readTextFile, readTextFlag } from './text-input.ts';

const noInput = async (): Promise<Uint8Array> => new Uint8Array();
const isPosix = process.platform !== 'win32';

const folder = mkdtempSync(join(tmpdir(), 'kvasir-text-'));
afterAll(() => rmSync(folder, { recursive: true }));

it('reads a file of several chunks', async () => {
  const path = join(folder, 'text');
  const text = 'é fox '.repeat(50_000);
  writeFileSync(path, text);
  expect((await readTextFile('prompt', path)) === text).toBe(true);
});

it('reads the pipe of a prompt', needs(isPosix, 'no pipes with names'), async () => {
  const path = join(folder, 'pipe');
  execFileSync('mkfifo', [path]);
  const writer = spawn('sh', ['-c', `printf fox > '${path}'`]);
  expect(await readTextFlag('prompt', `@${path}`, noInput)).toBe('fox');
  writer.kill();
});

it('refuses a file without an end', needs(isPosix, 'no /dev/zero'), async () => {
  const message = 'Cannot read the prompt /dev/zero: it has more than 67108864 bytes';
  await expect(readTextFlag('prompt', '@/dev/zero', noInput)).rejects.toThrow(message);
});

it(
  'refuses pipes and devices for templates and configurations, without waiting for a writer',
  needs(isPosix, 'no pipes with names'),
  async () => {
    const path = join(folder, 'pipe without a writer');
    execFileSync('mkfifo', [path]);
    for (const file of [path, '/dev/zero'])
      await expect(readTextFile('chat template', file)).rejects.toThrow(`${file}: it is not a regular file.`);
  },
);

it('says that a folder is not a file', async () => {
  await expect(readTextFile('prompt', folder)).rejects.toThrow(`${folder}: it is not a regular file.`);
  await expect(readTextFile('prompt', join(folder, 'none'))).rejects.toThrow('none: there is no such file.');
});
