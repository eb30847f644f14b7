/**
 * Writes a model for benches, if there is no real one: random weights in the shape of Qwen3-0.6B or of another model.
 *
 *   npm run build && node dist/bench/make-model/make-model.js /tmp/qwen3-0.6b-shaped.gguf Q8_0
 *   node dist/bench/make-model/make-model.js /tmp/experts.gguf Q4_K_M qwen3moe-2b
 */
import { type WeightTypeName, weightTypeNames } from '../../src/ggml/types.ts';
import { writeShaped } from './model-maker.ts';
import { type ModelShape, shapes } from './model-shapes.ts';

const types: readonly (WeightTypeName | 'Q4_K_M')[] = [...weightTypeNames, 'Q4_K_M'];
const shapeNames = Object.keys(shapes) as ModelShape[];
const [path, typeName = 'Q8_0', shapeName = 'qwen3-0.6b'] = process.argv.slice(2);
const type = types.find((name) => name === typeName);
const shape = shapeNames.find((name) => name === shapeName);
if (path === undefined || path.startsWith('-') || type === undefined || shape === undefined) {
  console.error(`usage: make-model <file.gguf> [${types.join(' | ')}] [${shapeNames.join(' | ')}]`);
  process.exitCode = 2;
} else {
  await writeShaped(path, shape, type);
  console.log(`wrote ${path}`);
}
