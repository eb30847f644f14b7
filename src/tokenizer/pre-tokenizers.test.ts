/**
 * Each pre-tokenizer of libllama gets texts of each class of characters, in a process of its own. Those that never recurse get long
 * texts. For the others the limit of a match is lowered instead, so short texts are cut. The tokens must decode to the text.
 */
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, expect, it } from 'vitest';
import { buildOnce } from '../../test/support/build-once.ts';
import { byteLevelKeys, ggufBytes } from '../../test/support/gguf-bytes.ts';
import { isLongForm } from '../../test/support/long-form.ts';
import { temporaryFolder } from '../../test/support/tiny-model.ts';
import { cutRuleOf, refusedPreTokenizers } from './pre-tokenizers.ts';

interface Job {
  /** Undefined: the file names no pre-tokenizer. */
  readonly name: string | undefined;
  readonly texts: readonly string[];
  readonly runLengthMax?: number;
}

const folder = temporaryFolder();
afterAll(() => folder.remove());

/** All names that libllama knows, those with the same expressions in one line. An undefined name: the file has none. */
const known: readonly (readonly (string | undefined)[])[] = [
  [undefined, 'default'],
  ['gpt-2', 'phi-2', 'jina-es', 'jina-de', 'gigachat', 'jina-v2-es', 'jina-v2-de', 'a.x-4.0', 'mellum', 'modern-bert'],
  ['jina-v1-en', 'jina-v2-code', 'roberta-bpe', 'mpt', 'olmo', 'jais', 'exaone4', 'trillion', 'granite-docling'],
  ['smollm', 'starcoder', 'refact', 'command-r', 'codeshell', 'exaone', 'minerva-7b', 'mellum2'],
  ['llama-bpe', 'llama3', 'llama-v3', 'falcon3', 'falcon-h1', 'pixtral', 'midm-2.0', 'lfm2', 'jina-v5-nano'],
  ['dbrx', 'smaug-bpe', 'chatglm-bpe', 'glm4'],
  ['qwen2', 'deepseek-r1-qwen', 'kormo', 'f2llmv2', 'stablelm2', 'megrez', 'hunyuan', 'solar-open', 'grok-2'],
  ['deepseek-v3', 'hunyuan-dense', 'joyai-llm', 'hy_v4'],
  ['gpt-4o', 'llama4', 'kanana2', 'talkie', 'minimax-m2'],
  ['bailingmoe', 'bailingmoe2', 'llada-moe'],
  ['tiny_aya', 'cohere2moe'],
  ['bloom', 'poro-chat', 'gpt3-finnish'],
  ...['qwen35', 'kimi-k2', 'laguna', 'chameleon', 'minicpm5', 'deepseek-llm', 'deepseek-coder'].map((name) => [name]),
  ...['spark2_5', 'youtu', 'falcon', 'jais-2', 'viking', 'tekken', 'granite-embed-multi-97m'].map((name) => [name]),
  ...['exaone-moe', 'seed-coder', 'ufakzeka', 'afmoe'].map((name) => [name]),
  ['gemma4', 'granite-embed-multi-311m', 'sarvam-moe'],
];

const units = [
  'a',
  'A',
  'aB',
  '7',
  '٣',
  '!',
  '$',
  "'",
  ' ',
  '\t',
  '\n',
  '\r\n',
  '日',
  '한',
  'か',
  '🙂',
  '\u0301',
  'e\u0301',
];
const mixed = [
  '\u00a0',
  ' \u00a0',
  ' \u0085',
  'word ',
  'a ',
  'ab\n',
  'д',
  '\0',
  '/',
  '\n/',
  '1a',
  'ก',
  '\ue000',
  '\u0378',
];
/** For pre-tokenizers without recursion. */
const longTexts = textsOf(50_000);
const texts = textsOf(1_000);
const loweredMax = 100;

function textsOf(length: number): readonly string[] {
  const runs = (first: string, second: string) => first.repeat(length / 2 - 100) + second.repeat(length / 2 - 100);
  return [
    ...[...units, ...mixed].map((unit) => unit.repeat(length / unit.length)),
    ...[
      runs('!', '\n'),
      runs('a', ' '),
      runs(' ', 'a'),
      runs('!', 'a'),
      runs('\n', '/'),
      `!${'\n/'.repeat(length / 2)}`,
    ],
    ...['日', '7', '🙂', 'ɐ', '\u0301'].map((next) => `${' '.repeat(length / 2)}${next}`.repeat(2)),
  ];
}

const program = `
import { readFileSync } from 'node:fs';
const { readGguf } = await import(process.env.KVASIR_DIST + '/ggml/gguf.js');
const { openTokenizer } = await import(process.env.KVASIR_DIST + '/tokenizer/llama-tokenizer.js');
for (const { path, texts, runLengthMax } of JSON.parse(readFileSync(process.argv[1], 'utf8'))) {
  const tokenizer = await openTokenizer(await readGguf(path), undefined, runLengthMax);
  const wrong = texts.flatMap((text, i) => {
    const tokens = tokenizer.encode(text, { addSpecial: false });
    return tokenizer.decode(tokens) === text ? [] : [i];
  });
  console.log(JSON.stringify(wrong));
  tokenizer.close();
}`;

/** For each job, the texts whose tokens do not decode to them. */
async function wrongTexts(jobs: readonly Job[]) {
  await buildOnce(process.cwd());
  const given = jobs.map(({ name, texts, runLengthMax }) => {
    const path = folder.file(`${name ?? 'none'}.gguf`);
    writeFileSync(path, ggufBytes({ keys: byteLevelKeys(name) }));
    return { path, texts, runLengthMax };
  });
  const list = folder.file('jobs.json');
  writeFileSync(list, JSON.stringify(given));
  const env = { ...process.env, KVASIR_DIST: resolve('dist/src') };
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '--eval', program, list], {
    env,
  });
  return stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as number[]);
}

const firstNames = known.map(([name]) => name);
/** These have tokens for bytes, which the test's vocabulary lacks. */
const withByteTokens = ['gemma4', 'granite-embed-multi-311m', 'sarvam-moe'];
const jobs = firstNames
  .filter((name) => !withByteTokens.includes(name ?? ''))
  .map((name, index): Job => {
    if (cutRuleOf(name) !== 'never') return { name, texts, runLengthMax: loweredMax };
    return { name, texts: longTexts.filter((_, i) => i % (isLongForm ? 4 : 16) === index % 4) };
  });

it('texts of each class of characters decode to themselves, also where they are cut', async () => {
  expect(await wrongTexts(jobs)).toEqual(jobs.map(() => []));
});

it('all names of pre-tokenizers with the same expressions have the same cut rule', async () => {
  for (const names of known) expect(new Set(names.map(cutRuleOf)).size, names.join()).toBe(1);
  const names = known.flat().filter((name) => name !== undefined);
  expect(new Set(names).size).toBe(names.length);
  expect(names.some((name) => refusedPreTokenizers.has(name))).toBe(false);
  if (isLongForm) expect(await wrongTexts(names.map((name) => ({ name, texts: [] })))).toHaveLength(names.length);
});
