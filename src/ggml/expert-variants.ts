import { type Architecture, traitsOf } from './architectures.ts';
import {
  type ExpertConfig,
  readDeepseekExperts,
  readExpertConfig,
  readGraniteExperts,
  readLfm2Experts,
  readNemotronExperts,
  readQwen35Experts,
} from './expert-config.ts';
import { readGemma4Experts } from './gemma4-config.ts';
import type { GgufFile } from './gguf.ts';

/** What experts share with the rest of the model. */
interface ModelShape {
  readonly feedForwardLength: number;
  readonly layerCount: number;
  readonly vocabSize: number;
}

/** The experts of a model; undefined if it has none. */
export function readExperts(file: GgufFile, architecture: Architecture, shape: ModelShape): ExpertConfig | undefined {
  const experts = readVariant(file, architecture, shape);
  if (experts === undefined || traitsOf(architecture).hasFusedExperts !== true) return experts;
  const isFused = file.tensors.has(`blk.${experts.denseLayers ?? 0}.ffn_gate_up_exps.weight`);
  return isFused ? { ...experts, hasFusedGate: true } : experts;
}

function readVariant(file: GgufFile, architecture: Architecture, shape: ModelShape): ExpertConfig | undefined {
  const { experts, expertKeys } = traitsOf(architecture);
  if (expertKeys === undefined) return undefined;
  if (expertKeys === 'gemma4') return readGemma4Experts(file);
  if (experts === 'maybe' && (file.metadata.u32(`${architecture}.expert_count`) ?? 0) === 0) return undefined;
  switch (expertKeys) {
    case 'qwen':
      return readExpertConfig(file, architecture, shape.feedForwardLength);
    case 'gpt-oss':
      return readExpertConfig(file, architecture);
    case 'deepseek':
      return readDeepseekExperts(file, architecture, shape);
    case 'lfm2':
      return readLfm2Experts(file, architecture, shape);
    case 'qwen3.5':
      return readQwen35Experts(file, architecture, shape.feedForwardLength);
    case 'nemotron':
      return readNemotronExperts(file, architecture, shape.feedForwardLength);
    case 'granite':
      return readGraniteExperts(file, architecture, shape.feedForwardLength);
  }
}
