import { writeFileSync } from 'node:fs';
import { afterAll, describe, expect, it } from 'vitest';
import { ggufBytes, sentencePieceKeys } from '../../test/support/gguf-bytes.ts';
import { temporaryFolder, writeTinyModel } from '../../test/support/tiny-model.ts';
import { loadNative } from '../ggml/ffi.ts';
import { readGguf } from '../ggml/gguf.ts';
import type { Tokenizer } from './contract.ts';
import { openTokenizer } from './llama-tokenizer.ts';

const demo = 'models/kvasir-demo.gguf';
const folder = temporaryFolder();
afterAll(() => folder.remove());

const sentence = 'Once upon a time there was a little fox who lived in the forest. ';
/** About 400,000 characters. */
const long = sentence.repeat(6_200);

/** `toEqual` takes seconds for half a million tokens. */
const expectSame = (left: Int32Array, right: Int32Array) =>
  expect([left.length, Buffer.compare(Buffer.from(left.buffer), Buffer.from(right.buffer))]).toEqual([right.length, 0]);

const openers: [string, () => Promise<Tokenizer>][] = [
  ...(['llama', 'qwen3'] as const).map((architecture): [string, () => Promise<Tokenizer>] => [
    architecture,
    async () => {
      const path = folder.file(`${architecture}.gguf`);
      await writeTinyModel(path, { architecture, type: 'Q8_0' });
      return openTokenizer(await readGguf(path));
    },
  ]),
  [
    'SentencePiece',
    async () => {
      const path = folder.file('sentencepiece.gguf');
      writeFileSync(path, ggufBytes({ keys: [...sentencePieceKeys()] }));
      return openTokenizer(await readGguf(path));
    },
  ],
];

describe.each(openers)('encodeInBackground with the vocabulary of a %s model', (_, open) => {
  it('returns the same tokens as `encode`', async () => {
    const tokenizer = await open();
    const texts = [
      sentence.repeat(300),
      '',
      'a',
      '<|im_start|>user\nhi<|im_end|>'.repeat(500),
      'x'.repeat(33_000),
      '  \n\t '.repeat(2000),
      'über 🙂 \ud83d lone \0 日本語 '.repeat(1000),
    ];
    for (const text of texts) {
      for (const addSpecial of [true, false]) {
        for (const parseSpecial of [true, false]) {
          const options = { addSpecial, parseSpecial };
          expectSame(await tokenizer.encodeInBackground(text, options), tokenizer.encode(text, options));
        }
      }
    }
    tokenizer.close();
  });

  it('no token has more bytes than tokenBytesMax', async () => {
    const tokenizer = await open();
    for (let id = 0; id < tokenizer.vocabSize; id++) {
      expect(tokenizer.tokenBytes(id, { special: true }).length).toBeLessThanOrEqual(tokenizer.tokenBytesMax);
    }
    tokenizer.close();
  });
});

describe('the text thread', () => {
  const open = async () => openTokenizer(await readGguf(demo));

  it('adds the same special tokens as llama_tokenize', async () => {
    const tokenizer = await open();
    const native = loadNative();
    const path = folder.file('llama.gguf');
    const model = native.llama_model_load_from_file(path, {
      ...native.llama_model_default_params(),
      vocab_only: true,
    });
    const llama = await openTokenizer(await readGguf(path));
    const bytes = new TextEncoder().encode(sentence);
    const tokens = new Int32Array(200);
    const vocab = native.llama_model_get_vocab(model);
    const count = native.llama_tokenize(vocab, bytes, bytes.length, tokens, tokens.length, true, false);
    expect(llama.encode(sentence)).toEqual(tokens.slice(0, count));
    native.llama_model_free(model);
    llama.close();
    tokenizer.close();
  });

  it('does not block the event loop while it encodes 400,000 characters', async () => {
    const tokenizer = await open();
    await tokenizer.encodeInBackground('starts the thread');
    let turns = 0;
    let isDone: boolean = false;
    const counting = (async () => {
      for (; !isDone; turns++) await new Promise(setImmediate);
    })();
    const tokens = await tokenizer.encodeInBackground(long);
    isDone = true;
    await counting;
    // Encoding on this thread would allow no turn.
    expect(turns).toBeGreaterThan(100);
    expectSame(tokens, tokenizer.encode(long));
    tokenizer.close();
  });

  it('runs jobs in order, and skips aborted jobs', async () => {
    const tokenizer = await open();
    const controller = new AbortController();
    const order: string[] = [];
    const first = tokenizer.encodeInBackground(long).then(() => order.push('first'));
    const second = tokenizer.encodeInBackground(long.repeat(20), {}, controller.signal);
    const third = tokenizer.encodeInBackground('b').then(() => order.push('third'));
    controller.abort(new Error('aborted'));
    await expect(second).rejects.toThrow('aborted');
    expect(order).toEqual([]);
    await Promise.all([first, third]);
    expect(order).toEqual(['first', 'third']);
    await expect(tokenizer.encodeInBackground('c', {}, controller.signal)).rejects.toThrow('aborted');
    tokenizer.close();
  });

  it('rejects a running job at once if it is aborted, and runs the next job', async () => {
    const tokenizer = await open();
    await tokenizer.encodeInBackground('starts the thread');
    const controller = new AbortController();
    const running = tokenizer.encodeInBackground(long, {}, controller.signal);
    let isNextDone: boolean = false;
    const next = tokenizer.encodeInBackground('fox').finally(() => {
      isNextDone = true;
    });
    controller.abort(new Error('aborted'));
    await expect(running).rejects.toThrow('aborted');
    expect(isNextDone).toBe(false);
    expect(await next).toEqual(tokenizer.encode('fox'));
    tokenizer.close();
  });

  it('rejects unfinished jobs when the tokenizer is closed, and frees the vocabulary after the running call', async () => {
    const tokenizer = await open();
    await tokenizer.encodeInBackground('starts the thread');
    const running = tokenizer.encodeInBackground(long);
    const waiting = tokenizer.encodeInBackground('a');
    await new Promise(setImmediate);
    tokenizer.close();
    await expect(running).rejects.toThrow('closed');
    await expect(waiting).rejects.toThrow('closed');
    await expect(tokenizer.encodeInBackground('a')).rejects.toThrow('closed');
  });

  it('`decodeParts` returns the same text as `decode`', async () => {
    const tokenizer = await open();
    const text = '日本語 🙂 fox '.repeat(8000);
    const tokens = tokenizer.encode(text, { addSpecial: false });
    const parts = [...tokenizer.decodeParts(tokens)];
    expect(parts.length).toBeGreaterThan(3);
    expect(parts.join('') === text).toBe(true);
    expect(
      tokenizer.decode(tokens.subarray(0, -1)) === [...tokenizer.decodeParts(tokens.subarray(0, -1))].join(''),
    ).toBe(true);
    tokenizer.close();
  });
});
