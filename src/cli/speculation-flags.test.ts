import { EventEmitter } from 'node:events';
import { Readable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { LetterEngine } from '../../test/support/letter-engine.ts';
import type { EngineOptions } from '../engine/options.ts';
import { generateCommand } from './generate.ts';
import { runCli } from './run-cli.ts';

async function run(...flags: string[]) {
  const engine = new LetterEngine();
  let options: EngineOptions | undefined;
  let stderr = '';
  const context = {
    version: '1.2.3',
    createEngine: async (given: EngineOptions) => {
      options = given;
      return engine;
    },
    stdout: { write: () => undefined },
    stderr: { write: (text: string) => (stderr += text) },
    stdin: Readable.from([]),
    signals: new EventEmitter(),
    exitNow: () => undefined,
  };
  const code = await runCli(['generate', '--prompt', 'abc', '--max-tokens', '1', ...flags], context, [generateCommand]);
  return { code, stderr, options };
}

describe('--spec-method, --spec-model and --spec-tokens', () => {
  it.each<[string[], string]>([
    [['--spec-method', 'ngram', '--spec-tokens', '8'], '{"method":"ngram","num_speculative_tokens":8}'],
    [['--spec-tokens', '8'], '{"num_speculative_tokens":8}'],
    [['--spec-method', 'suffix'], '{"method":"suffix"}'],
    [['--spec-method', 'suffix', '--spec-tokens', '3'], '{"method":"suffix","num_speculative_tokens":3}'],
    [['--spec-model', 's.gguf', '--spec-tokens', '5'], '{"model":"s.gguf","num_speculative_tokens":5}'],
    [['--spec-method', 'mtp', '--spec-tokens', '2'], '{"method":"mtp","num_speculative_tokens":2}'],
    [
      ['--spec-method', 'draft_model', '--spec-model', 's.gguf', '--spec-tokens', '5'],
      '{"method":"draft_model","model":"s.gguf","num_speculative_tokens":5}',
    ],
  ])('%j mean the same as --speculative-config %s', async (flags, json) => {
    const { code, options } = await run(...flags);
    expect(code).toBe(0);
    expect(options!.speculativeConfig).toBeDefined();
    expect(options!.speculativeConfig).toEqual((await run('--speculative-config', json)).options!.speculativeConfig);
  });

  const json = ['--speculative-config', '{"method":"ngram","num_speculative_tokens":8}'];
  it.each<[string[], string]>([
    [['--spec-tokens', '8', ...json], 'cannot be combined with --speculative-config'],
    [['--spec-method', 'ngram', ...json], 'cannot be combined with --speculative-config'],
    [['--spec-method', 'ngram'], '--spec-tokens is missing'],
    [['--spec-model', 's.gguf'], '--spec-tokens is missing'],
    [['--spec-method', 'draft_model', '--spec-tokens', '5'], '--spec-method draft_model needs --spec-model'],
    [['--spec-model', '', '--spec-tokens', '5'], '--spec-model needs a GGUF file'],
    [['--spec-method', 'suffix', '--spec-model', 's.gguf'], '--spec-method suffix has no draft model'],
    [['--spec-method', 'eagle', '--spec-tokens', '5'], 'Allowed choices are ngram, suffix, mtp, draft_model'],
    [['--spec-method', 'ngram', '--spec-tokens', '65'], 'a whole number from 1 to 64'],
  ])('%j are refused with code 2 before anything is loaded', async (flags, message) => {
    const { code, stderr, options } = await run(...flags);
    expect(stderr).toContain(message);
    expect([code, options]).toEqual([2, undefined]);
  });
});
