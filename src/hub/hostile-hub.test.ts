/** A hub, or a program between it and Kvasir, that sends anything. Nothing outside the folder of the model may change. */
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, mkdtemp, readdir, readFile, readlink, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type HubDescription, HubServer } from '../../test/support/hub-server.ts';
import { removeModels } from './downloaded-models.ts';
import * as errors from './errors.ts';
import { type PullOptions, pullModel } from './pull-model.ts';
import { hubSettings } from './settings.ts';

const content = randomBytes(10_000);
const sha256 = createHash('sha256').update(content).digest('hex');
const commit = 'c'.repeat(40);
const name = 'hf:maker/model-GGUF';
const refused = ({ definition }: { definition: { code: string } }) =>
  expect.objectContaining({ code: definition.code });

let hub: HubServer;
let root: string;
let folder: string;
let options: PullOptions;

beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'kvasir-hostile-hub-'));
  folder = join(root, 'hub');
  await mkdir(folder);
  await writeFile(join(root, 'm.gguf'), 'mine');
  hub = await HubServer.start();
  hub.publish('maker/model-GGUF', { 'm.gguf': content });
  options = { settings: hub.settings(folder, 'secret'), retries: { delayMs: 1, delayMaxMs: 1, attemptsMax: 2 } };
});
afterEach(async () => {
  await hub.stop();
  await rm(root, { recursive: true });
});

/** Every file beside the folder of models is as before, and that folder has files of this repository only. */
async function expectUntouched(): Promise<void> {
  expect((await readdir(root)).sort()).toEqual(['hub', 'm.gguf']);
  expect(await readFile(join(root, 'm.gguf'), 'utf8')).toBe('mine');
  expect((await readdir(folder)).every((entry) => entry === 'models--maker--model-GGUF')).toBe(true);
}

const withFile = (file: object) => (description: HubDescription) => ({
  ...description,
  siblings: [{ ...description.siblings[0], ...file }],
});

describe('a description of a hostile hub', () => {
  const commits = [
    '../../../..',
    '..',
    '',
    '.',
    '/etc',
    'main',
    'C'.repeat(40),
    `${commit}/..`,
    `${commit}\n`,
    'c:\\x',
  ];
  it.each([...commits, 'a\0b', 'x'.repeat(1 << 16)])('with the commit %j is refused', async (sha) => {
    hub.changeDescription = (description) => ({ ...description, sha });
    await expect(pullModel(name, options)).rejects.toThrow(refused(errors.hubAnswerInvalid));
    await expectUntouched();
  });

  it('with another commit than the one that was asked for is refused', async () => {
    const path = await pullModel(name, options);
    const asked = path.split('/').at(-2)!;
    hub.changeDescription = (description) => ({ ...description, sha: commit });
    await expect(pullModel(`${name}@${asked}`, options)).rejects.toThrow(`expected the commit ${asked}`);
  });

  const paths = ['../m.gguf', '../../../../../m.gguf', '/m.gguf', 'a//m.gguf', './m.gguf', 'a/../m.gguf', '..\\m.gguf'];
  const odd = [
    'C:\\m.gguf',
    'C:/m.gguf',
    'm.gguf:x.gguf',
    'a\0.gguf',
    'a\n.gguf',
    '\u001b[2J.gguf',
    'nul.gguf',
    'COM1.gguf',
  ];
  const long = [`${'x'.repeat(300)}.gguf`, `${'x/'.repeat(600)}m.gguf`, 'a./m.gguf', 'a /m.gguf', '\ud800.gguf'];
  it.each([...paths, ...odd, ...long])('does not make the file %j', async (rfilename) => {
    hub.changeDescription = withFile({ rfilename });
    await expect(pullModel(name, options)).rejects.toThrow(refused(errors.noGgufFiles));
    await expectUntouched();
  });

  const hashes = [
    '../../../../m.gguf',
    `../${'a'.repeat(61)}`,
    '',
    'A'.repeat(64),
    'a'.repeat(50),
    'a'.repeat(65),
    7,
    null,
  ];
  it.each(hashes)('does not make the blob %j', async (hash) => {
    for (const file of [{ lfs: { sha256: hash } }, { lfs: undefined, blobId: hash }]) {
      hub.changeDescription = withFile(file);
      await expect(pullModel(name, options)).rejects.toThrow(refused(errors.noGgufFiles));
    }
    await expectUntouched();
  });

  it.each([-1, 0.5, 1e300, '10000', null, Number.MAX_SAFE_INTEGER + 1])(
    'with the size %j has no file',
    async (size) => {
      hub.changeDescription = withFile({ size });
      await expect(pullModel(name, options)).rejects.toThrow(refused(errors.noGgufFiles));
    },
  );

  it('with a wrong size leaves no file', async () => {
    hub.changeDescription = withFile({ size: content.length - 1 });
    await expect(pullModel(name, options)).rejects.toThrow(refused(errors.downloadCorrupt));
    hub.changeDescription = withFile({ size: content.length + 1 });
    await expect(pullModel(name, options)).rejects.toThrow(refused(errors.downloadStopped));
    hub.changeDescription = withFile({ size: Number.MAX_SAFE_INTEGER });
    await expect(pullModel(name, options)).rejects.toThrow(refused(errors.diskTooSmall));
    await expectUntouched();
  });

  it.each(['', '[', 'null', '7', '{"sha":1,"siblings":{}}', '['.repeat(1 << 20)])(
    'that is %.20s is refused',
    async (text) => {
      hub.changeDescription = () => text;
      await expect(pullModel(name, options)).rejects.toThrow(refused(errors.hubRefused));
    },
  );
});

describe('an answer of a hostile hub', () => {
  const served = async (listener: RequestListener, run: (endpoint: string) => Promise<void>): Promise<void> => {
    const server = createServer(listener);
    await once(server.listen(0, '127.0.0.1'), 'listening');
    try {
      await run(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    } finally {
      server.closeAllConnections();
      server.close();
    }
  };
  const pullFrom = (endpoint: string) => pullModel(name, { ...options, settings: { ...options.settings!, endpoint } });

  it.each([200, 500])('that has no end, with status %i, ends the command with an error', async (status) => {
    const endless: RequestListener = (_, response) => {
      response.writeHead(status);
      const more = (): void => {
        while (!response.destroyed && response.write(Buffer.alloc(1 << 20, 0x20)));
      };
      response.on('drain', more);
      more();
    };
    const error = status === 200 ? errors.hubAnswerInvalid : errors.hubRefused;
    await served(endless, (endpoint) => expect(pullFrom(endpoint)).rejects.toThrow(refused(error)));
  });

  it('does not bring codes for terminals into messages', async () => {
    const listener: RequestListener = (_, response) => response.writeHead(404).end('a \u001b]0;title\u0007 b\u202e');
    await served(listener, (endpoint) => expect(pullFrom(endpoint)).rejects.toThrow(/: a \]0;title b\. /));
  });

  it('that redirects for ever is refused', async () => {
    let count = 0;
    const listener: RequestListener = (_, response) => response.writeHead(302, { location: `/${count++}` }).end();
    await served(listener, (endpoint) => expect(pullFrom(endpoint)).rejects.toThrow(/at most 5 redirects/));
    expect(count).toBe(6);
  });

  const foreign = [
    'http://192.0.2.1/m.gguf',
    'file:///etc/passwd',
    'data:,x',
    'ftp://x/y',
    'https://u:p@x/',
    'http://',
    '',
  ];
  it.each(foreign)('that redirects to %j is refused', async (location) => {
    hub.redirect = location;
    const { hubAnswerInvalid } = errors;
    if (location === '') await expect(pullModel(name, options)).rejects.toThrow(refused(hubAnswerInvalid));
    else await expect(pullModel(name, options)).rejects.toThrow(/wrong redirect: .*expected an https address/);
    await expectUntouched();
  });

  it('that redirects to another host does not get the token there', async () => {
    await pullModel(name, options);
    expect(hub.contentRequests).toEqual([{ path: 'm.gguf' }]);
  });

  it('with another part of the file than the asked one is refused', async () => {
    hub.contentFaults.push({ kind: 'lost-connection', afterBytes: 5_000 }, { kind: 'other-range' });
    await expect(pullModel(name, options)).rejects.toThrow(/wrong content-range/);
    await pullModel(name, options);
  });
});

describe('a hub without https', () => {
  it.each(['http://192.0.2.1', 'http://hub.example', 'http://127.0.0.1.example', 'ftp://x', 'hub', 'https://u:p@x'])(
    'at %s is not asked',
    async (endpoint) => {
      const settings = { ...options.settings!, endpoint };
      await expect(pullModel(name, { ...options, settings })).rejects.toThrow(refused(errors.hubNotSecure));
    },
  );

  it('may be asked on this machine, or if the user says so', () => {
    expect(hubSettings({ KVASIR_HUB_ALLOW_HTTP: '1' }).isHttpAllowed).toBe(true);
    expect(hubSettings({}).isHttpAllowed).toBe(false);
  });
});

describe('links in the folder of models', () => {
  const repository = () => join(folder, 'models--maker--model-GGUF');

  it('lead no download out of it', async () => {
    const outside = join(root, 'hub', 'models--maker--model-GGUF-outside');
    await mkdir(outside, { recursive: true });
    for (const place of ['snapshots', 'blobs']) {
      await rm(repository(), { recursive: true, force: true });
      await mkdir(repository());
      await symlink(outside, join(repository(), place));
      await expect(pullModel(name, options)).rejects.toThrow(refused(errors.hubFolderUnusable));
      expect(await readdir(outside, { recursive: true })).not.toContain('m.gguf');
    }
  });

  it('at the place of an incomplete blob do not lead its bytes to another file', async () => {
    await mkdir(join(repository(), 'blobs'), { recursive: true });
    await symlink(join(root, 'm.gguf'), join(repository(), 'blobs', `${sha256}.kvasir-incomplete`));
    await expect(pullModel(name, options)).rejects.toThrow(refused(errors.hubFolderUnusable));
    await expectUntouched();
  });

  it('to other files are removed without these files', async () => {
    const path = await pullModel(name, options);
    await symlink(join('..', '..', '..', '..', 'm.gguf'), join(path, '..', 'other.gguf'));
    await writeFile(join(repository(), 'notes.txt'), 'mine');
    await removeModels(name, folder);
    await expectUntouched();
    expect(await readdir(repository())).toEqual(['notes.txt']);
  });

  it('are replaced, but files are not', async () => {
    const path = await pullModel(name, options);
    await rm(path);
    await symlink('nowhere', path);
    expect(await pullModel(name, options)).toBe(path);
    expect(await readlink(path)).toBe(join('..', '..', 'blobs', sha256));
    await rm(path);
    await writeFile(path, 'mine');
    await expect(pullModel(name, options)).rejects.toThrow(/is not a link of this cache/);
    expect((await stat(path)).size).toBe(4);
  });
});
