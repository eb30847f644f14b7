import type { ComputeDevice } from '../../ggml/device.ts';
import type { DecoderParts } from '../arch/decoder.ts';
import type { AttentionChoice } from '../attention/attention-choice.ts';
import { attentionLayers } from '../attention-layers.ts';
import { DecoderGraphs } from '../decoder-graphs.ts';
import { type AttentionKv, predictionLayout } from '../kv-groups.ts';
import { type KvLayout, KvMemory } from '../kv-memory.ts';
import type { RowOperations } from '../operations/row-operations.ts';
import type { LogitsPasses } from '../sampling/logits-candidates.ts';
import { StateTables } from '../states/layer-states.ts';
import type { ModelWeights } from '../weights.ts';
import { Predictor, type PredictorParts } from './predictor.ts';

export interface PredictorSettings extends Pick<PredictorParts, 'read' | 'onLogits'> {
  readonly device: ComputeDevice;
  readonly weights: ModelWeights;
  /** Of the model's pool. The layer's blocks have as many tokens. */
  readonly layout: KvLayout;
  /** As many as the pool has, so that the layer's KV has room for all texts of the pool. */
  readonly blockCount: number;
  readonly attention: AttentionChoice;
  readonly shared: Pick<DecoderParts, 'config' | 'kernels' | 'headRotation' | 'bestTokens' | 'adapters'>;
  readonly operations: RowOperations | undefined;
  readonly passes: LogitsPasses;
}

/** @throws KvasirError if there is no memory for the KV. */
export function createPredictor(settings: PredictorSettings): Predictor {
  const { device, weights, layout, blockCount, attention, shared, operations, passes, read, onLogits } = settings;
  const memory = new KvMemory(device, predictionLayout(layout), blockCount);
  const place: AttentionKv = { kind: 'attention', index: 0, group: 0, place: 0, window: undefined };
  const decoder: Omit<DecoderParts, 'graph'> = {
    ...shared,
    checksRows: false,
    weights,
    memories: [memory],
    layersKv: [place],
    mixers: undefined,
    states: new StateTables(device.native, memory, [place]),
    attention: attention.create([memory], attentionLayers(device.native, shared.config, [place], weights)),
  };
  const graphs = new DecoderGraphs(device, operations);
  const close = (): void => {
    graphs.close();
    memory.close();
    weights.close();
  };
  return new Predictor({ decoder, graphs, passes, read, onLogits, close });
}
