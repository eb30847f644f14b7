import type { AsyncEngine } from '../../src/engine/contract.ts';

/** A token whose text is one plain character, so that a server that streams text sends a chunk for each token. */
export function plainToken(engine: Pick<AsyncEngine, 'model' | 'detokenize'>): number | undefined {
  for (let token = 0; token < engine.model.vocabSize; token++) {
    if (/^[!-~]$/.test(engine.detokenize([token], { skipSpecialTokens: true }))) return token;
  }
  return undefined;
}
