import { createEngine } from './compose.ts';
import { OfflineLlm } from './engine/llm.ts';
import type { EngineOptions } from './engine/options.ts';

/** `OfflineLlm` on a GGUF file: prompts in, finished texts out. The model is loaded at the first use. */
export class LLM extends OfflineLlm {
  constructor(options: EngineOptions) {
    super(() => createEngine(options));
  }
}
