import { createEngine } from './compose.ts';
import { OfflineLlm } from './engine/llm.ts';
import type { EngineOptions } from './engine/options.ts';

/** Offline inference with a GGUF file: takes prompts and returns finished completions. Loads the model at the first use. */
export class LLM extends OfflineLlm {
  constructor(options: EngineOptions) {
    super(() => createEngine(options));
  }
}
