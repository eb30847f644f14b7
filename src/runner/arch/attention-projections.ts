import type { TensorPtr } from '../../ggml/ffi.ts';
import type { AttentionRows } from '../attention/attention.ts';
import type { Batch } from '../batch.ts';
import type { LayerWeights } from './layer-weights.ts';

/**
 * What a layer with attention computes besides attention itself. One implementation has K and V of each KV head
 * (`grouped-query-attention.ts`), the other latent vectors (`latent-attention.ts`).
 *
 * `h`: the layer's input after its norm, F32 `[embedding, rows]`.
 */
export interface AttentionProjections {
  /** The rows of the pool, F32 `[row elements, rows]`: K and V, or only K if V is in K. */
  poolRows(weights: LayerWeights, h: TensorPtr, place: RowPlace): readonly TensorPtr[];
  /** The result of attention after the output matrix: F32 `[embedding, rows]`. */
  attend(weights: LayerWeights, h: TensorPtr, place: QueryPlace): TensorPtr;
  /** Called before each computation, after the graph is allocated. Without the method there are no inputs. */
  writeInputs?(batch: Batch): void;
}

export interface RowPlace {
  /** Of the rows of h, I32 `[rows]`. */
  readonly positions: TensorPtr;
}

export interface QueryPlace extends RowPlace {
  /** The layer's index for `Attention.attend`. */
  readonly index: number;
  /** Whether h has the whole batch or only the sampled rows. */
  readonly rows: AttentionRows;
}
