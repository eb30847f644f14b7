import { type Architecture, type BertNetwork, traitsOf } from './architectures.ts';
import type { GgufFile } from './gguf.ts';

/** What BERT's architectures have of their own. */
export interface BertConfig {
  readonly network: BertNetwork;
  readonly hasUpBias: boolean;
  readonly hasDownBias: boolean;
  /** Embeddings of positions are added to those of the tokens. */
  readonly hasPositions: boolean;
  /** Rows of `token_types.weight`, of which the first is added to every token, as in llama.cpp; 0: there is no such tensor. */
  readonly tokenTypes: number;
}

/** Undefined for other architectures. */
export function readBertConfig({ metadata, tensors }: GgufFile, architecture: Architecture): BertConfig | undefined {
  const { bertNetwork: network, hasPositionEmbeddings } = traitsOf(architecture);
  if (network === undefined) return undefined;
  const key = 'tokenizer.ggml.token_type_count';
  const tokenTypes = metadata.require(key, metadata.u32(key));
  return {
    network,
    hasUpBias: tensors.has('blk.0.ffn_up.bias'),
    hasDownBias: tensors.has('blk.0.ffn_down.bias'),
    hasPositions: hasPositionEmbeddings === true,
    tokenTypes: tensors.has('token_types.weight') ? tokenTypes : 0,
  };
}
