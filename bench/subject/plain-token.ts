import type { AsyncEngine } from '../../src/engine/contract.ts';

/** A token whose text is one plain character, so that whoever streams text has something to say for each of them. */
export function plainToken(engine: Pick<AsyncEngine, 'model' | 'detokenize'>): number | undefined {
  for (let token = 0; token < engine.model.vocabSize; token++) {
    if (/^[!-~]$/.test(engine.detokenize([token], { skipSpecialTokens: true }))) return token;
  }
  return undefined;
}
