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
  if (architecture === 'qwen3moe') return readExpertConfig(file, architecture, shape.feedForwardLength);
  if (architecture === 'gpt-oss') return readExpertConfig(file, architecture);
  if (architecture === 'deepseek2' || architecture === 'glm4moe') return readDeepseekExperts(file, architecture, shape);
  if (architecture === 'gemma4') return readGemma4Experts(file);
  if (architecture === 'lfm2moe') return readLfm2Experts(file, architecture, shape);
  if (architecture === 'qwen35moe' || architecture === 'qwen3next')
    return readQwen35Experts(file, architecture, shape.feedForwardLength);
  if (architecture === 'nemotron_h_moe') return readNemotronExperts(file, architecture, shape.feedForwardLength);
  const count = file.metadata.u32(`${architecture}.expert_count`) ?? 0;
  return architecture === 'granitehybrid' && count > 0
    ? readGraniteExperts(file, architecture, shape.feedForwardLength)
    : undefined;
}
