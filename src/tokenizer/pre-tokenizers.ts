import type { GgufFile } from '../ggml/gguf.ts';

/**
 * The pre-tokenizers of libllama (`tokenizer.ggml.pre`), which split a text into words before byte-level BPE. Some run
 * loops of libllama, others regular expressions whose engine recurses once per character of a match.
 */

/**
 * Where a text must be cut, so that no match of a pre-tokenizer overflows the stack or takes quadratic time:
 *
 * - `never`: it does not recurse, or only for a few characters.
 * - `runs`: a match is a run of white space, or a run of other characters with the line ends after it.
 * - `words`: also a match of many words with single spaces between them.
 * - `spaces`: also quadratic time for white space before characters that take no space into their word.
 */
export type CutRule = 'never' | 'runs' | 'words' | 'spaces';

/**
 * Refused: `whitespace` may abort the process, and the time of `superbpe` has no bound.
 */
export const refusedPreTokenizers: ReadonlySet<string> = new Set(['whitespace', 'superbpe']);

/** `pre-tokenizers.test.ts` runs each of them with long texts. libllama refuses unknown names. */
const withoutRecursion = new Set([
  // The loop for GPT-2's expression; some also split off single digits, or a few characters, with an expression.
  ...['gpt-2', 'phi-2', 'jina-es', 'jina-de', 'gigachat', 'jina-v2-es', 'jina-v2-de', 'a.x-4.0', 'mellum'],
  ...['modern-bert', 'jina-v1-en', 'jina-v2-code', 'roberta-bpe', 'mpt', 'olmo', 'jais', 'exaone4', 'trillion'],
  ...['granite-docling', 'starcoder', 'refact', 'command-r', 'smollm', 'codeshell', 'exaone', 'minerva-7b'],
  ...['mellum2', 'chameleon'],
  // The loop for Llama 3's expression.
  ...['llama3', 'llama-v3', 'llama-bpe', 'falcon3', 'falcon-h1', 'pixtral', 'midm-2.0', 'lfm2', 'jina-v5-nano'],
  ...['dbrx', 'smaug-bpe', 'chatglm-bpe', 'glm4'],
  // The loops for the expressions of Qwen 2 and Qwen 3.5.
  ...['qwen2', 'deepseek-r1-qwen', 'kormo', 'f2llmv2', 'stablelm2', 'megrez', 'hunyuan', 'solar-open', 'grok-2'],
  ...['laguna', 'qwen35'],
  // Loops of their own.
  ...['kimi-k2', 'gemma4', 'granite-embed-multi-311m', 'sarvam-moe'],
]);

/** Undefined if the file names none. Gemma 4's tokenizer always has its own, and SentencePiece has none. */
export function preTokenizerOf({ metadata }: GgufFile): string | undefined {
  return metadata.string('tokenizer.ggml.model') === 'gemma4' ? 'gemma4' : metadata.string('tokenizer.ggml.pre');
}

/** `pre`: undefined if the file has none; libllama then uses its default, which recurses. */
export function cutRuleOf(pre: string | undefined): CutRule {
  if (pre === undefined) return 'runs';
  if (withoutRecursion.has(pre)) return 'never';
  if (pre === 'exaone-moe') return 'words';
  return pre === 'deepseek-llm' ? 'spaces' : 'runs';
}
