/** Python programs of `tools/real-models`. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { assert } from '../../src/base/assert.ts';
import { parsesSpecial } from './texts.ts';

export function runTool(python: string, name: string, args: readonly string[], input: string): string {
  const tool = join('tools', 'real-models', name);
  const { status, stdout, stderr } = spawnSync(python, [tool, ...args], {
    input,
    encoding: 'utf8',
    maxBuffer: 1 << 30,
  });
  assert(status === 0, stderr);
  return stdout;
}

/** By Hugging Face's tokenizers, from the vocabulary of a GGUF file. */
export function tokensByPython(python: string, path: string, texts: readonly string[]): readonly number[][] {
  const input = JSON.stringify(texts.map((text, index) => [text, parsesSpecial(index)]));
  return JSON.parse(runTool(python, 'expected_tokens.py', [path], input)) as number[][];
}
