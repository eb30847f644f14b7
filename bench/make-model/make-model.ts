/**
 * Writes a model for benches, if there is no real one: random weights in the shape of Qwen3-0.6B.
 *
 *   npm run build && node dist/bench/make-model/make-model.js /tmp/qwen3-0.6b-shaped.gguf Q8_0
 */
import { type WeightTypeName, weightTypeNames } from '../../src/ggml/types.ts';
import { writeQwen06Shaped } from './model-maker.ts';

const types: readonly (WeightTypeName | 'Q4_K_M')[] = [...weightTypeNames, 'Q4_K_M'];
const [path, typeName = 'Q8_0'] = process.argv.slice(2);
const type = types.find((name) => name === typeName);
if (path === undefined || type === undefined) {
  console.error(`usage: make-model <file.gguf> [${types.join(' | ')}]`);
  process.exitCode = 2;
} else {
  await writeQwen06Shaped(path, type);
  console.log(`wrote ${path}`);
}
