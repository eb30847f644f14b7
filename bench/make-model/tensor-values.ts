/** The values of the tensors of a model. */
import type { ModelConfig } from '../../src/ggml/model-config.ts';
import { fillDivisors, gemma4Filling } from './gemma4-models.ts';
import { hybridFilling } from './hybrid-models.ts';
import type { ModelOptions } from './model-maker.ts';
import type { Filling, RandomRows } from './random-rows.ts';

/** Writes some rows of a tensor, from `firstRow` on. */
export type Filler = (target: Float32Array, rows: number, columns: number, firstRow: number) => void;

export function fillerOf(name: string, options: ModelOptions, config: ModelConfig, random: RandomRows): Filler {
  const randomly: Filler = (target, rows, columns) =>
    random.fill(target, rows, columns, fillingOf(name, columns, config));
  if (config.architecture === 'gemma4' && name === 'rope_freqs.weight') {
    return (target, ...rest) => {
      randomly(target, ...rest);
      fillDivisors(target);
    };
  }
  if (options.isPredictable !== true) return randomly;
  if (name.endsWith('norm.weight')) return (target) => void target.fill(1);
  if (/attn_output|ffn_down/.test(name)) return (target) => void target.fill(0);
  if (!name.endsWith('eh_proj.weight')) return randomly;
  // The embedding of the token goes on, and the hidden state does not.
  return (target, rows, columns, firstRow) => {
    target.fill(0);
    for (let row = 0; row < rows; row++) target[row * columns + firstRow + row] = 1;
  };
}

/**
 * Matrices keep the magnitude of activations. The sum of the layers is larger than the embedding, so that the next token
 * depends on the whole context. Rows of the head have different lengths, so that the best logit has a clear margin.
 */
function fillingOf(name: string, columns: number, config: ModelConfig): Filling {
  const ofArchitecture = config.architecture === 'gemma4' ? gemma4Filling(name, columns, config) : hybridFilling(name);
  if (ofArchitecture !== undefined) return ofArchitecture;
  const matrix = 1 / Math.sqrt(columns);
  if (name.startsWith('rope_f')) return { mean: 4, deviation: 0.5, rowSpread: 0 };
  // With smaller norms, the sum of the layers would be smaller than the embedding times its scale.
  if (config.norms === 'around' && /\.post_\w+_norm\.weight$/.test(name))
    return { mean: 10, deviation: 1, rowSpread: 0 };
  if (name.endsWith('norm.weight')) return { mean: 1, deviation: 0.1, rowSpread: 0 };
  if (name.endsWith('attn_sinks.weight')) return { mean: 0, deviation: 2, rowSpread: 0 };
  // About the differences of probabilities, so that it changes some choices.
  if (name.endsWith('exp_probs_b.bias')) return { mean: 0, deviation: 0.05, rowSpread: 0 };
  if (name.endsWith('.bias')) return { mean: 0, deviation: 0.5, rowSpread: 0 };
  if (name === 'output.weight') return { mean: 0, deviation: 3 * matrix, rowSpread: 0.5 };
  if (name === 'position_embd.weight') return { mean: 0, deviation: 0.3, rowSpread: 0 };
  if (name === 'token_embd.weight') {
    return config.tiedEmbeddings
      ? { mean: 0, deviation: 3 * matrix, rowSpread: 0.5 }
      : { mean: 0, deviation: 0.5, rowSpread: 0 };
  }
  // One expert of a token has most of the weight: where rounding chooses another last expert, little changes.
  if (name.includes('ffn_gate_inp')) return { mean: 0, deviation: 4 * matrix, rowSpread: 0 };
  // Some values of gpt-oss are larger than the limit of its networks.
  if (config.hasExpertBias && /ffn_(gate|up)_exps/.test(name))
    return { mean: 0, deviation: 2.5 * matrix, rowSpread: 0 };
  // Scores stay small enough that a token attends to many.
  if (name.includes('attn_k_b')) return { mean: 0, deviation: 0.5 * matrix, rowSpread: 0 };
  const outward = ['attn_output', 'shortconv.out_proj', 'ffn_down'].some((part) => name.includes(part));
  return { mean: 0, deviation: (outward ? 3 : 1.5) * matrix, rowSpread: 0 };
}
