import { spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chmodSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { readKvTransferConfig } from './config.ts';
import { readKeyFile } from './key-file.ts';
import { createConnector, registerConnector } from './registry.ts';

const folder = mkdtempSync(join(tmpdir(), 'kvasir-keys-'));
afterAll(() => rmSync(folder, { recursive: true }));
const path = join(folder, 'keys');
const hex = randomBytes(32).toString('hex');
const longer = randomBytes(48).toString('hex');

function keyFile(text: string, mode = 0o600): string {
  writeFileSync(path, text);
  chmodSync(path, mode);
  return path;
}

describe('a key file', () => {
  it('has a key in each line, the newest first, beside comments and empty lines', () => {
    const { keys, warning } = readKeyFile(keyFile(`# since May\n${hex.toUpperCase()}\r\n\n  ${longer}  \n# the end`));
    expect(keys.map((key) => Buffer.from(key).toString('hex'))).toEqual([hex, longer]);
    expect(warning).toBeUndefined();
  });

  it.each([
    ['', 'it has no key'],
    ['# no key\n', 'it has no key'],
    [hex.slice(2), 'the key in line 1 has 31 bytes'],
    [`\n${hex}0`, 'line 2 is not an even number of hexadecimal digits'],
    [`${hex} ${longer}`, 'line 1 is not an even number'],
    ['my secret', 'line 1 is not an even number'],
    ['0'.repeat(64), 'the key in line 1 is not random'],
    [`${hex}\n${hex.toUpperCase()}`, 'the key in line 2 is there twice'],
    [`${hex}\n`.repeat(2000), 'more than 65536'],
    [Array.from({ length: 17 }, () => randomBytes(32).toString('hex')).join('\n'), 'it has 17 keys, more than 16'],
  ])('is refused with the reason: %#', (text, reason) => {
    let message = '';
    try {
      readKeyFile(keyFile(text));
    } catch (error) {
      message = (error as Error).message;
      expect(error).toMatchObject({ code: 'KVASIR_KEY_FILE_INVALID' });
    }
    expect(message).toContain(reason);
    expect(message).not.toContain(hex.slice(0, 12));
    expect(message).not.toContain('my secret');
  });

  it('must exist, and be a regular file; a link to one is right', () => {
    expect(() => readKeyFile(join(folder, 'none'))).toThrow('ENOENT');
    expect(() => readKeyFile(folder)).toThrow('not a regular file');
    if (process.platform !== 'win32') {
      spawnSync('mkfifo', [join(folder, 'fifo')]);
      expect(() => readKeyFile(join(folder, 'fifo'))).toThrow('not a regular file');
      symlinkSync(keyFile(hex), join(folder, 'link'));
      expect(readKeyFile(join(folder, 'link')).keys).toHaveLength(1);
    }
  });

  // Windows has no such modes.
  const modes: readonly (readonly [mode: number, warning: string | undefined])[] = [
    [0o600, undefined],
    [0o440, undefined],
    [0o644, 'Others can read the key file'],
    [0o620, 'Others can change the key file'],
    [0o666, 'Others can change the key file'],
  ];
  it.each(process.platform === 'win32' ? [] : modes)('with the mode %o gives the warning %s', (mode, warning) => {
    const found = readKeyFile(keyFile(hex, mode)).warning;
    if (warning === undefined) expect(found).toBeUndefined();
    else expect(found).toContain(warning);
    expect(found ?? '').not.toContain(hex);
  });
});

describe('a connector with a key file', () => {
  const config = (extra: object) =>
    readKvTransferConfig({ kv_role: 'kv_both', kv_transfer_key_file: keyFile(hex), ...extra } as never);

  it('is refused if it would ignore the keys', async () => {
    const unused = (): never => {
      throw new Error('not opened');
    };
    registerConnector(
      'IgnoringConnector',
      async () =>
        class {
          openScheduler = unused;
          openWorker = unused;
        },
    );
    await expect(createConnector(config({ kv_connector: 'IgnoringConnector' }))).rejects.toMatchObject({
      code: 'KVASIR_CONNECTOR_IGNORES_KEYS',
    });
  });

  it('reads the keys at once, so that a wrong file is an error before the model is loaded', async () => {
    const shared = {
      kv_connector: 'SharedStorageConnector',
      kv_connector_extra_config: { shared_storage_path: folder },
    };
    expect((await createConnector(config(shared))).authenticatesBlocks).toBe(true);
    const wrong = config({ ...shared, kv_transfer_key_file: join(folder, 'none') });
    await expect(createConnector(wrong)).rejects.toMatchObject({ code: 'KVASIR_KEY_FILE_INVALID' });
  });
});
