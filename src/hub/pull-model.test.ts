import { createHash, randomBytes } from 'node:crypto';
import { mkdtemp, readdir, readFile, readlink, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { HubServer } from '../../test/support/hub-server.ts';
import * as errors from './errors.ts';
import { HubCache } from './hub-cache.ts';
import { modelFile } from './model-file.ts';
import { findOrPullModel, type PullOptions, pullModel } from './pull-model.ts';

const content = randomBytes(300_000);
const sha256 = createHash('sha256').update(content).digest('hex');
const name = 'hf:maker/model-GGUF:Q8_0';
const refused = ({ definition }: { definition: { code: string } }) =>
  expect.objectContaining({ code: definition.code });

describe('downloads of models', () => {
  let hub: HubServer;
  let folder: string;
  let options: PullOptions;

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'kvasir-hub-'));
    hub = await HubServer.start();
    hub.publish('maker/model-GGUF', { 'm-Q8_0.gguf': content, 'README.md': Buffer.from('#') });
    options = { settings: hub.settings(folder), retries: { delayMs: 1, delayMaxMs: 1, attemptsMax: 3 } };
  });
  afterEach(async () => {
    await hub.stop();
    await rm(folder, { recursive: true });
  });
  const blobs = () => readdir(join(folder, 'models--maker--model-GGUF', 'blobs')).catch(() => []);

  it('have the layout of Hugging Face’s programs', async () => {
    const path = await pullModel(name, options);
    expect((await readFile(path)).equals(content)).toBe(true);
    const commit = await readFile(join(folder, 'models--maker--model-GGUF', 'refs', 'main'), 'utf8');
    expect(path).toBe(join(folder, 'models--maker--model-GGUF', 'snapshots', commit, 'm-Q8_0.gguf'));
    expect(await readlink(path)).toBe(join('..', '..', 'blobs', sha256));
    expect(await blobs()).toEqual([sha256]);
  });

  it('report the received bytes of all parts', async () => {
    hub.publish('maker/model-GGUF', {
      'm-Q8_0-00001-of-00002.gguf': content,
      'm-Q8_0-00002-of-00002.gguf': content.subarray(1),
    });
    const seen: [number, number][] = [];
    const path = await pullModel(name, { ...options, onProgress: (...progress) => seen.push(progress) });
    expect(path).toMatch(/00001-of-00002\.gguf$/);
    expect(seen.at(-1)).toEqual([599_999, 599_999]);
    expect(seen.map(([received]) => received)).toEqual(seen.map(([received]) => received).sort((a, b) => a - b));
  });

  it('happen once: later starts send no request', async () => {
    const path = await pullModel(name, options);
    const asked = hub.descriptionRequests;
    expect(await findOrPullModel(name, options)).toBe(path);
    expect(await findOrPullModel('hf:maker/model-GGUF', options)).toBe(path);
    expect(hub.descriptionRequests).toBe(asked);
    expect(await pullModel(name, options)).toBe(path);
    expect(hub.contentRequests).toHaveLength(1);
  });

  it('follow a new version, and keep content that did not change', async () => {
    const before = await pullModel(name, options);
    hub.publish('maker/model-GGUF', { 'm-Q8_0.gguf': content, 'README.md': Buffer.from('# new') });
    const after = await pullModel(name, options);
    expect(after).not.toBe(before);
    expect(hub.contentRequests).toHaveLength(1);
    expect((await readFile(after)).equals(content)).toBe(true);
  });

  describe('continue', () => {
    it('after lost connections, from the last byte on', async () => {
      hub.contentFaults.push(
        { kind: 'lost-connection', afterBytes: 100_000 },
        { kind: 'lost-connection', afterBytes: 50_000 },
      );
      const path = await pullModel(name, options);
      expect((await readFile(path)).equals(content)).toBe(true);
      // A lost connection may lose bytes that have arrived.
      const offsets = hub.contentRequests.map(({ range = 'bytes=0-' }) => Number(/\d+/.exec(range)![0]));
      expect(offsets).toHaveLength(3);
      expect(offsets[1]).toBeGreaterThan(0);
      expect(offsets[2]).toBeGreaterThan(offsets[1]!);
    });

    it('any number of times, as long as bytes arrive', async () => {
      for (let i = 0; i < 10; i++) hub.contentFaults.push({ kind: 'lost-connection', afterBytes: 1000 });
      const retries = { ...options.retries, attemptsMax: 100 };
      expect((await readFile(await pullModel(name, { ...options, retries }))).equals(content)).toBe(true);
    });

    it('after a silent connection', async () => {
      hub.contentFaults.push({ kind: 'silence', afterBytes: 1000 });
      const path = await pullModel(name, { ...options, retries: { ...options.retries, silenceMs: 3_000 } });
      expect((await readFile(path)).equals(content)).toBe(true);
      expect(hub.contentRequests[1]!.range).toBe('bytes=1000-');
    });

    it('after busy answers, when the hub says', async () => {
      hub.descriptionFaults.push({ status: 429, headers: { 'retry-after': '0' } }, { status: 503 });
      hub.contentFaults.push(
        { kind: 'status', status: 429, headers: { 'retry-after': '0' } },
        { kind: 'status', status: 502 },
      );
      expect((await readFile(await pullModel(name, options))).equals(content)).toBe(true);
    });

    it('in a later process', async () => {
      for (let i = 0; i < 3; i++) hub.contentFaults.push({ kind: 'status', status: 500 });
      hub.contentFaults.unshift({ kind: 'lost-connection', afterBytes: 200_000 });
      await expect(pullModel(name, options)).rejects.toThrow(refused(errors.downloadStopped));
      expect(await blobs()).toEqual([`${sha256}.kvasir-incomplete`]);
      const { size } = await stat(join(folder, 'models--maker--model-GGUF', 'blobs', `${sha256}.kvasir-incomplete`));
      expect(size).toBeGreaterThan(0);
      expect((await readFile(await pullModel(name, options))).equals(content)).toBe(true);
      expect(hub.contentRequests.at(-1)!.range).toBe(`bytes=${size}-`);
      expect(await blobs()).toEqual([sha256]);
    });

    it('after an abort', async () => {
      const abort = new AbortController();
      hub.contentFaults.push({ kind: 'silence', afterBytes: 1000 });
      const onProgress = () => abort.abort(new Error('enough'));
      await expect(pullModel(name, { ...options, onProgress, signal: abort.signal })).rejects.toThrow('enough');
      await pullModel(name, options);
      expect(hub.contentRequests.at(-1)!.range).toBe('bytes=1000-');
    });

    it('from the start, with a mirror that sends no ranges', async () => {
      hub.contentFaults.push({ kind: 'lost-connection', afterBytes: 1000 }, { kind: 'whole-file' });
      expect((await readFile(await pullModel(name, options))).equals(content)).toBe(true);
    });

    it('with what is left when all bytes had arrived', async () => {
      hub.contentFaults.push(
        { kind: 'lost-connection', afterBytes: content.length - 1 },
        { kind: 'status', status: 404 },
      );
      await expect(pullModel(name, options)).rejects.toThrow(refused(errors.hubRefused));
      await writeFile(join(folder, 'models--maker--model-GGUF', 'blobs', `${sha256}.kvasir-incomplete`), content);
      const requests = hub.contentRequests.length;
      expect((await readFile(await pullModel(name, options))).equals(content)).toBe(true);
      expect(hub.contentRequests).toHaveLength(requests);
    });

    it('beside another download of the same file', async () => {
      const paths = await Promise.all([pullModel(name, options), pullModel(name, options)]);
      for (const path of paths) expect((await readFile(path)).equals(content)).toBe(true);
      expect(await blobs()).toEqual([sha256]);
    });
  });

  it('are compared with the checksum of the hub', async () => {
    hub.contentFaults.push({ kind: 'changed-bytes' });
    await expect(pullModel(name, options)).rejects.toThrow(refused(errors.downloadCorrupt));
    expect(await blobs()).toEqual([]);
    expect((await readFile(await pullModel(name, options))).equals(content)).toBe(true);
  });

  it('of bytes that changed on the disk start again', async () => {
    hub.contentFaults.push({ kind: 'lost-connection', afterBytes: 1000 }, { kind: 'status', status: 404 });
    await expect(pullModel(name, options)).rejects.toThrow(refused(errors.hubRefused));
    await writeFile(
      join(folder, 'models--maker--model-GGUF', 'blobs', `${sha256}.kvasir-incomplete`),
      Buffer.alloc(1000),
    );
    await expect(pullModel(name, options)).rejects.toThrow(refused(errors.downloadCorrupt));
    expect((await readFile(await pullModel(name, options))).equals(content)).toBe(true);
  });

  it('replace a blob that is too short', async () => {
    const path = await pullModel(name, options);
    await truncate(path, 10);
    expect((await readFile(await pullModel(name, options))).equals(content)).toBe(true);
  });

  describe('of a gated model', () => {
    beforeEach(() => hub.publish('maker/gated-GGUF', { 'm-Q8_0.gguf': content }, 'hf_right'));
    const pull = (token?: string) =>
      pullModel('hf:maker/gated-GGUF', { ...options, settings: hub.settings(folder, token) });

    it('send the token to the hub, and not to other hosts', async () => {
      expect((await readFile(await pull('hf_right'))).equals(content)).toBe(true);
      expect(hub.contentRequests).toEqual([{ path: 'm-Q8_0.gguf' }]);
    });

    it('say that a token is needed', async () => {
      await expect(pull()).rejects.toThrow(/status 401 .*set HF_TOKEN/);
      await expect(pull('hf_wrong')).rejects.toThrow(/status 403 .*Accept the model's licence/);
      await expect(pull()).rejects.toThrow(refused(errors.hubRefused));
    });
  });

  describe('fail with a sentence', () => {
    it('if there is no such repository or revision', async () => {
      await expect(pullModel('hf:maker/none', options)).rejects.toThrow(/Check the name/);
      await expect(pullModel('hf:maker/model-GGUF@none', options)).rejects.toThrow(/Invalid rev id.*revision/);
    });

    it('if the repository has no GGUF files, with repositories that do', async () => {
      hub.publish('maker/model', { 'model.safetensors': content });
      hub.quantizations.set('maker/model', ['maker/model-GGUF', 'other/model-GGUF']);
      const error = expect(pullModel('hf:maker/model', options)).rejects;
      await error.toThrow('made from it: hf:maker/model-GGUF, hf:other/model-GGUF.');
      await expect(pullModel('hf:maker/model', options)).rejects.toThrow(refused(errors.noGgufFiles));
    });

    it('if the hub is not there, unless the model is', async () => {
      const path = await pullModel(name, options);
      const settings = { ...options.settings!, endpoint: 'http://127.0.0.1:9' };
      expect(await findOrPullModel(name, { ...options, settings })).toBe(path);
      const missing = findOrPullModel('hf:maker/other', { ...options, settings });
      await expect(missing).rejects.toThrow(refused(errors.hubUnreachable));
    });

    it('if it must stay offline', async () => {
      const settings = { ...options.settings!, isOffline: true };
      await expect(findOrPullModel(name, { ...options, settings })).rejects.toThrow(refused(errors.hubOffline));
      expect(hub.descriptionRequests).toBe(0);
    });

    it('if the folder cannot be used', async () => {
      const file = join(folder, 'file');
      await writeFile(file, '');
      await expect(pullModel(name, { ...options, settings: hub.settings(join(file, 'hub')) })).rejects.toThrow(
        refused(errors.hubFolderUnusable),
      );
    });

    it.each(['Qwen/Qwen3-0.6B', 'Qwen/Qwen3-0.6B:Q8_0'])(
      'if %s is given as a path, with what to type',
      async (model) => {
        const suggestion = model.replace('Qwen3-0.6B', 'Qwen3-0.6B-GGUF');
        await expect(modelFile(model, options)).rejects.toThrow(`write hf:${suggestion}.`);
        await expect(modelFile(model, options)).rejects.toThrow(refused(errors.modelNotPath));
      },
    );
  });

  it('are not needed for files', async () => {
    expect(await modelFile('models/m.gguf', options)).toBe('models/m.gguf');
    expect(await modelFile('models', options)).toBe('models');
  });

  it('stand in place of links for a user of Windows who may make none', async () => {
    const system = {
      platform: 'win32' as const,
      symlink: () => Promise.reject(Object.assign(new Error('symlink'), { code: 'EPERM' })),
    };
    const cache = new HubCache(folder, system);
    for (const [commit, text] of [
      ['a'.repeat(40), 'first'],
      ['b'.repeat(40), 'second'],
      ['a'.repeat(40), 'again'],
    ] as const) {
      const blob = await cache.blobPath('maker/model', sha256);
      await writeFile(blob, text);
      const location = cache.location('maker/model', commit, 'sub/m.gguf');
      await cache.place('maker/model', location, blob);
      expect(await readFile(location, 'utf8')).toBe(text);
    }
    const revisions = await cache.revisions();
    expect(revisions.map(({ files }) => files.map(({ path, bytes }) => [path, bytes]))).toEqual([
      [['sub/m.gguf', 5]],
      [['sub/m.gguf', 6]],
    ]);
    expect(
      await cache.remove(
        'maker/model',
        revisions.flatMap(({ files }) => files),
      ),
    ).toBe(11);
    expect(await readdir(folder)).toEqual([]);
    // A user of another system has a reason to hear of a link that cannot be made.
    const elsewhere = new HubCache(folder, { ...system, platform: 'linux' });
    const blob = await elsewhere.blobPath('maker/model', sha256);
    await writeFile(blob, 'x');
    const place = elsewhere.place('maker/model', elsewhere.location('maker/model', 'a'.repeat(40), 'm.gguf'), blob);
    await expect(place).rejects.toEqual(refused({ definition: errors.hubFolderUnusable.definition }));
  });

  describe('are removed', () => {
    it('with their blobs, unless another revision has the same content', async () => {
      await pullModel(name, options);
      hub.publish('maker/model-GGUF', { 'm-Q8_0.gguf': content, 'm-Q4_0.gguf': content.subarray(1) });
      await pullModel(name, options);
      await pullModel('hf:maker/model-GGUF:Q4_0', options);
      const cache = new HubCache(folder);
      const [first, second] = await cache.revisions();
      expect([first!.refs.length + second!.refs.length, (await blobs()).length]).toEqual([1, 2]);
      const old = first!.refs.length === 0 ? first! : second!;
      expect(await cache.remove('maker/model-GGUF', old.files)).toBe(0);
      expect((await blobs()).length).toBe(2);
      const [rest] = await cache.revisions();
      expect(await cache.remove('maker/model-GGUF', rest!.files)).toBe(2 * content.length - 1);
      expect(await readdir(folder)).toEqual([]);
    });
  });
});
