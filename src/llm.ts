import { createEngine } from './compose.ts';
import { OfflineLlm } from './engine/llm.ts';
import type { EngineOptions } from './engine/options.ts';
import { checkOptionTypes } from './engine/read-options.ts';

/**
 * Offline inference with a GGUF file: takes prompts and returns finished completions. Loads the model at the first use.
 *
 * ```ts
 * await using llm = new LLM({ model: 'model.gguf' });
 * const [output] = await llm.generate('Once upon a time', { maxTokens: 32, temperature: 0 });
 * console.log(output?.outputs[0]?.text);
 * ```
 */
export class LLM extends OfflineLlm {
  constructor(options: EngineOptions) {
    checkOptionTypes(options);
    super(() => createEngine(options));
  }
}
