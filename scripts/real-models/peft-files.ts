/** The model and the adapter whose logits PEFT has computed: equal files in each run. */
import { join } from 'node:path';
import { writeAdapter } from '../../bench/make-model/adapter-maker.ts';
import { writeTinyModel } from '../../bench/make-model/model-maker.ts';

export const peftPrompt: readonly number[] = Array.from({ length: 40 }, (_, i) => (i * 37 + 5) % 250);

export async function writePeftFiles(folder: string): Promise<{ readonly model: string; readonly adapter: string }> {
  const [model, adapter] = [join(folder, 'model.gguf'), join(folder, 'adapter.gguf')];
  await writeTinyModel(model, { architecture: 'qwen2', type: 'F32', layers: 2 });
  await writeAdapter(adapter, model, { changesEnds: true, rank: 8, alpha: 16 });
  return { model, adapter };
}
