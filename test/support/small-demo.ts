import type { EngineOptions } from '../../src/engine/options.ts';

/** The bundled model with small limits: it opens fast, and its steps are short. */
export const smallDemo: EngineOptions = {
  model: 'models/kvasir-demo.gguf',
  threads: 1,
  kvCacheMemory: 8 << 20,
  maxModelLen: 512,
  maxNumBatchedTokens: 64,
};
