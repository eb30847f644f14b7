import type { AsyncEngine } from '../engine/contract.ts';
import { tokenizeText } from './generation.ts';
import type { ParsedCompletion } from './openai-parse.ts';
import { fieldNotSupported } from './server-errors.ts';

/**
 * The prompts of a completion. With a `suffix`, the model fills the gap between prompt and suffix. The order is that of the models'
 * training: prefix, suffix, middle.
 *
 *     BOS? <prefix> prompt <suffix> suffix <middle>
 */
export async function promptsOf(
  engine: AsyncEngine,
  { prompts, suffix, addSpecial }: ParsedCompletion,
  signal: AbortSignal,
): Promise<readonly (string | Int32Array)[]> {
  if (suffix === undefined) return prompts;
  const { fimTokens, name } = engine.model;
  if (fimTokens === undefined) {
    throw fieldNotSupported({
      parameter: 'suffix',
      detail: `: the model \`${name}\` has no tokens for filling in the middle (FIM)`,
    });
  }
  const after = [fimTokens.suffix, ...(await tokenizeText(engine, suffix, false, signal)), fimTokens.middle];
  const filled: Int32Array[] = [];
  for (const prompt of prompts) {
    const isText = typeof prompt === 'string';
    const before = isText ? await tokenizeText(engine, prompt, false, signal) : prompt;
    const special = isText && addSpecial ? engine.tokenize('', { addSpecial }) : [];
    filled.push(Int32Array.from([...special, fimTokens.prefix, ...before, ...after]));
  }
  return filled;
}
