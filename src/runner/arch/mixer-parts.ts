import type { GraphBuilder } from '../../ggml/graph.ts';
import type { Matmuls } from '../matmul/matmuls.ts';
import type { Mixers } from '../mixer/mixers.ts';

/** From which a mixer builds its part of the graph. `config`: the shape of the model's layers with this mixer. */
export interface MixerParts<Config> {
  readonly graph: GraphBuilder;
  readonly matmuls: Matmuls;
  readonly mixers: Mixers;
  readonly config: Config;
  readonly rmsEpsilon: number;
}
