/** Weights that stay in the model file (`--mmap`): exactness.test.ts has their bits for all architectures. */
import { copyFileSync, renameSync, utimesSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { canMapFiles } from '../src/base/mapped-file.ts';
import { createEngine } from '../src/index.ts';
import { Drive, promptOf } from './support/drive.ts';
import { needs } from './support/needs.ts';
import { splitModel } from './support/split-model.ts';
import { temporaryFolder, writeTinyModel } from './support/tiny-model.ts';

const folder = temporaryFolder();
const model = folder.file('model.gguf');
const request = { id: 'subject', prompt: promptOf(60, 1), params: { maxTokens: 8 } };

beforeAll(() => writeTinyModel(model, { architecture: 'qwen3', type: 'Q4_K_M', layers: 4 }));
afterAll(() => folder.remove());

/** The text and how it ended. */
async function answerOf(engine: Awaited<ReturnType<typeof createEngine>>) {
  let text = '';
  const params = { maxTokens: 8, temperature: 0 };
  for await (const delta of engine.generate({ prompt: 'Once', params })) {
    text += delta.text;
    if (delta.finish !== undefined) return { text, ...delta.finish };
  }
  throw new Error('an answer ends');
}

async function logitsOf(...[path, options]: Parameters<typeof Drive.open>): Promise<readonly number[]> {
  const drive = await Drive.open(path, options);
  const traces = await drive.run([request]);
  await drive.close();
  return traces.get('subject')!.logits;
}

describe('mapped weights', needs(canMapFiles(), 'a system that maps files'), () => {
  it('have the same bits in several files, and in several stages', async () => {
    const copied = await logitsOf(model, {});
    const [first] = await splitModel(model, folder.file('part'), 3);
    expect(await logitsOf(first!, { mmap: true })).toEqual(copied);
    expect(await logitsOf(model, { mmap: true, stageCount: 2 })).toEqual(copied);
  });

  it('are those of the file that was opened, also after another file has taken its name', async () => {
    const path = folder.file('replaced.gguf');
    copyFileSync(model, path);
    await using engine = await createEngine({ model: path, device: 'cpu', threads: 1, mmap: true });
    const before = await answerOf(engine);
    await writeTinyModel(`${path}.new`, { architecture: 'qwen3', type: 'Q8_0', seed: 2 });
    renameSync(`${path}.new`, path);
    expect(await answerOf(engine)).toEqual(before);
  });

  it('that another program writes end the engine with an error, never with another text', async () => {
    const path = folder.file('written.gguf');
    copyFileSync(model, path);
    await using engine = await createEngine({ model: path, device: 'cpu', threads: 1, mmap: true });
    utimesSync(path, 1, 1);
    expect(await answerOf(engine)).toEqual({ text: '', reason: 'error' });
    const cause = expect.objectContaining({ code: 'KVASIR_MODEL_FILE_CHANGED' });
    await expect(answerOf(engine)).rejects.toMatchObject({ code: 'KVASIR_ENGINE_BROKEN', cause });
  });
});
