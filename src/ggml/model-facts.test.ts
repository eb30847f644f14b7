import { copyFile, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { modelFacts } from './model-facts.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'kvasir-facts-'));
});
afterAll(() => rm(folder, { recursive: true }));

it('facts of a file are read again when it has changed', async () => {
  const path = join(folder, 'model.gguf');
  expect(await modelFacts(path)).toBe(undefined);
  await writeFile(path, 'no model');
  expect(await modelFacts(path)).toBe(undefined);
  await copyFile('models/kvasir-demo.gguf', path);
  const facts = (await modelFacts(path))!;
  expect(facts.parameterCount).toBeGreaterThan(1_000_000);
  expect(facts.metadata['general.architecture']).toBe(facts.architecture);
  expect(facts.metadata['tokenizer.ggml.tokens']).toBe(null);
  expect(facts.tensors[0]).toMatchObject({ name: expect.any(String), type: expect.any(String) });
  expect(await modelFacts(path)).toBe(facts);
});
