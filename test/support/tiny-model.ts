import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { gemma4WithExperts } from '../../bench/make-model/gemma4-models.ts';
import { isHybrid, isNemotron, smallStates, tinyHybrid } from '../../bench/make-model/hybrid-models.ts';
import type { ModelOptions } from '../../bench/make-model/model-maker.ts';
import type { Architecture } from '../../src/ggml/model-config.ts';

export { characterMap } from '../../bench/make-model/encoder-models.ts';
export { gemma4WithExperts } from '../../bench/make-model/gemma4-models.ts';
export { hasDeltaNets, isHybrid, isNemotron, smallStates, tinyHybrid } from '../../bench/make-model/hybrid-models.ts';
export { type ModelOptions, writeTinyHeader, writeTinyModel } from '../../bench/make-model/model-maker.ts';

/** Options of models for long contexts, whose original contexts are shorter than the prompts of tests. */
export const longContexts: { readonly [architecture in Architecture]?: Partial<ModelOptions> } = {
  olmo2: { layers: 3, windowPattern: 3, window: 40, ropeScaling: 'yarn', originalContext: 32 },
  phi3: { ropeScaling: 'longrope', originalContext: 32 },
  mistral3: { ropeScaling: 'yarn', originalContext: 32, temperatureScale: 0.3, yarnLogMultiplier: 1 },
};

/** Few layers, with each kind of layer of the architecture. */
export function fewLayers(architecture: Architecture, type: ModelOptions['type']): Partial<ModelOptions> {
  if (architecture === 'gemma3' || architecture === 'gpt-oss') return { layers: 3, windowPattern: 3 };
  if (architecture === 'gemma4') return type === 'Q4_K_M' ? gemma4WithExperts : {};
  if (architecture === 'lfm2') return tinyHybrid;
  if (architecture === 'lfm2moe') return { layers: 3, stateLayers: [0, 1] };
  if (architecture in longContexts) return longContexts[architecture] ?? {};
  const few = isHybrid(architecture) ? { layers: isNemotron(architecture) ? 4 : 3, ...smallStates } : {};
  return architecture === 'qwen3next' ? { ...few, experts: fusedExperts } : few;
}

const fusedExperts = { count: 8, used: 3, feedForwardLength: 256, hasFusedGate: true };

/** A folder for the files of one test file; call `remove` at the end. */
export function temporaryFolder(): { readonly path: string; file(name: string): string; remove(): void } {
  const path = mkdtempSync(join(tmpdir(), 'kvasir-test-'));
  return { path, file: (name) => join(path, name), remove: () => rmSync(path, { recursive: true, force: true }) };
}
