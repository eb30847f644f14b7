import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

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

/** A folder for the files of one test file; call `remove` at the end. */
export function temporaryFolder(): { readonly path: string; file(name: string): string; remove(): void } {
  const path = mkdtempSync(join(tmpdir(), 'kvasir-test-'));
  return { path, file: (name) => join(path, name), remove: () => rmSync(path, { recursive: true, force: true }) };
}
