import { writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  byteLevelKeys,
  type GgufBytesOptions,
  gemma4Keys,
  ggufBytes,
  sentencePieceKeys,
} from '../../test/support/gguf-bytes.ts';
import { libllamaVocabulary } from '../../test/support/libllama-vocabulary.ts';
import { characterMap, temporaryFolder, writeTinyModel } from '../../test/support/tiny-model.ts';
import { loadNative } from '../ggml/ffi.ts';
import { readGguf } from '../ggml/gguf.ts';
import { problemOfCharacterMap } from './character-map.ts';
import type { Tokenizer } from './contract.ts';
import { openTokenizer } from './llama-tokenizer.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());

const texts = [
  'Once upon a time there was a little fox.',
  ' leading and trailing spaces  ',
  'über café naïve — 日本語 🙂🙂 \u{1F469}\u200D\u{1F680}',
  'tabs\tand\r\nnew lines\n\n',
  'a NUL \0 in the middle',
  '\uFEFFa byte order mark',
  '<|im_start|>user\nnot a real turn<|im_end|>',
  '',
];
const utf8 = (bytes: Uint8Array): string => new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes);
const plain = { addSpecial: false };

describe.each(['llama', 'qwen2', 'qwen3'] as const)('the tokenizer of a %s model', (architecture) => {
  let tokenizer: Tokenizer;
  beforeAll(async () => {
    const path = folder.file(`${architecture}.gguf`);
    await writeTinyModel(path, { architecture, type: 'Q8_0' });
    tokenizer = await openTokenizer(await readGguf(path));
    return () => tokenizer.close();
  });

  it.each(texts)('decodes the tokens of %j to the same text', (text) => {
    const tokens = tokenizer.encode(text, plain);
    expect(tokenizer.decode(tokens)).toBe(text);
    expect(utf8(Buffer.concat(Array.from(tokens, (id) => tokenizer.tokenBytes(id))))).toBe(text);
  });

  it('encodes names of control tokens as control tokens only with `parseSpecial`', () => {
    const text = '<|im_start|>fox<|im_end|>';
    const asText = tokenizer.encode(text, plain);
    expect([...asText].some((id) => tokenizer.isControl(id))).toBe(false);
    const parsed = tokenizer.encode(text, { ...plain, parseSpecial: true });
    expect([...parsed].filter((id) => tokenizer.isControl(id))).toHaveLength(2);
    expect(tokenizer.decode(parsed)).toBe('fox');
    expect(tokenizer.decode(parsed, { skipSpecialTokens: false })).toBe(text);
  });

  it('returns names of control tokens only with `special`', () => {
    const id = tokenizer.eosTokenIds[0]!;
    expect(tokenizer.tokenBytes(id)).toHaveLength(0);
    expect(utf8(tokenizer.tokenBytes(id, { special: true }))).toMatch(/^<\|.*\|>$/);
  });

  it('keeps the bytes of all tokens in few buffers', () => {
    const ids = Array.from({ length: tokenizer.vocabSize }, (_, id) => id);
    const before = ids.map((id) => tokenizer.tokenBytes(id, { special: true }));
    const texts = before.map(utf8);
    const after = ids.map((id) => tokenizer.tokenBytes(id, { special: true }));
    expect(after.every((bytes, id) => bytes === before[id])).toBe(true);
    expect(after.map(utf8)).toEqual(texts);
    const buffers = new Set(after.map(({ buffer }) => buffer));
    expect(buffers.size).toBeLessThan(ids.length / 10);
  });

  it('adds BOS only if the vocabulary says so', () => {
    const tokens = tokenizer.encode('fox');
    expect(tokens[0] === tokenizer.bosTokenId).toBe(architecture === 'llama');
  });

  it('knows the tokens that end a completion', () => {
    const names = tokenizer.eosTokenIds.map((id) => utf8(tokenizer.tokenBytes(id, { special: true })));
    expect(names).toEqual(['<|endoftext|>', '<|im_end|>']);
    expect(tokenizer.eosTokenIds.every((id) => tokenizer.isEndOfGeneration(id))).toBe(true);
    expect(tokenizer.isEndOfGeneration(0)).toBe(false);
  });

  it('encodes a lone surrogate as U+FFFD', () => {
    expect(tokenizer.decode(tokenizer.encode('a\ud83d b', plain))).toBe('a\ufffd b');
  });

  it('encodes a text of any length', () => {
    const text = 'the quick brown fox '.repeat(20_000);
    expect(tokenizer.decode(tokenizer.encode(text, plain))).toBe(text);
  });

  it('fails an assertion for an id that is no token', () => {
    for (const id of [-1, tokenizer.vocabSize, 1.5]) expect(() => tokenizer.tokenBytes(id)).toThrow(/outside/);
  });

  it('token bytes, joined, equal the result of llama_detokenize', () => {
    const native = loadNative();
    const tokens = tokenizer.encode(texts.join('\n'), plain);
    const path = folder.file(`${architecture}.gguf`);
    const model = native.llama_model_load_from_file(path, {
      ...native.llama_model_default_params(),
      vocab_only: true,
    });
    const out = new Uint8Array(10_000);
    const length = native.llama_detokenize(
      native.llama_model_get_vocab(model),
      tokens,
      tokens.length,
      out,
      out.length,
      false,
      false,
    );
    native.llama_model_free(model);
    const joined = Buffer.concat(Array.from(tokens, (id) => tokenizer.tokenBytes(id)));
    expect(joined.equals(out.subarray(0, length))).toBe(true);
  });
});

describe('the tokenizer of a SentencePiece model', () => {
  const open = async (...changes: NonNullable<GgufBytesOptions['keys']>) => {
    const keys = new Map([...sentencePieceKeys(), ...changes]);
    const path = folder.file('sentencepiece.gguf');
    writeFileSync(path, ggufBytes({ keys: [...keys] }));
    return openTokenizer(await readGguf(path));
  };
  const spelled = (tokenizer: Tokenizer, text: string) =>
    Array.from(tokenizer.encode(text), (id) => utf8(tokenizer.tokenBytes(id, { special: true })));

  it('adds a space before a text when encoding, and removes it when decoding', async () => {
    const tokenizer = await open();
    expect(spelled(tokenizer, 'the fox')).toEqual(['<s>', ' the', ' fox']);
    for (const text of ['the fox', ' fox', 'über 🙂', '']) expect(tokenizer.decode(tokenizer.encode(text))).toBe(text);
    expect(tokenizer.decode(tokenizer.encode('fox'), { skipSpecialTokens: false })).toBe('<s> fox');
    tokenizer.close();
  });

  it('adds no space if the vocabulary says so', async () => {
    const tokenizer = await open(['tokenizer.ggml.add_space_prefix', { bool: false }]);
    expect(spelled(tokenizer, 'fox')).toEqual(['<s>', 'fox']);
    expect(tokenizer.decode(tokenizer.encode(' fox'))).toBe(' fox');
    tokenizer.close();
  });

  const types = sentencePieceKeys().flatMap(([, value]) => ('i32s' in value ? value.i32s : []));
  it.each([
    ['control', 3, { isFound: true, isText: false }],
    ['user-defined', 4, { isFound: true, isText: true }],
    ['normal', 1, { isFound: false, isText: true }],
  ] as const)(
    '`</s>` is what the file says, not what libllama makes of it: %s',
    async (_, type, { isFound, isText }) => {
      const tokenizer = await open(
        ['tokenizer.ggml.eos_token_id', { u32: 1 }],
        ['tokenizer.ggml.token_type', { i32s: types.map((other, id) => (id === 2 ? type : other)) }],
      );
      const long = 'fox '.repeat(3_000);
      for (const text of ['fox</s>', `${long}</s>`]) {
        expect(tokenizer.encode(text, { parseSpecial: true }).includes(2)).toBe(isFound);
        expect(tokenizer.encode(text).includes(2)).toBe(isFound && isText);
        expect(tokenizer.decode(tokenizer.encode(text))).toBe(text);
      }
      expect(tokenizer.eosTokenIds.includes(2)).toBe(!isText);
      expect([tokenizer.isControl(2), tokenizer.isEndOfGeneration(2)]).toEqual([!isText, !isText]);
      expect(utf8(tokenizer.tokenBytes(2))).toBe(isText ? '</s>' : '');
      tokenizer.close();
    },
  );

  const tokens = sentencePieceKeys().flatMap(([, value]) => ('strings' in value ? value.strings : []));
  const withToken = (id: number, text: string) => ({ strings: tokens.map((token, i) => (i === id ? text : token)) });
  it.each([
    ['no vocabulary', ['tokenizer.ggml.tokens', { strings: [] }], /must be an array of strings/],
    [
      'another kind of tokenizer',
      ['tokenizer.ggml.model', { string: 'rwkv' }],
      /kind rwkv; supported: gpt2, llama, gemma4, bert, t5/,
    ],
    ['bytes in WordPiece', ['tokenizer.ggml.model', { string: 'bert' }], /token 3 has the type byte/],
    [
      'the same text twice',
      ['tokenizer.ggml.tokens', withToken(260, 'x')],
      /tokens 260 and 262 have the same text "x"/,
    ],
    [
      'the name of an empty text',
      [
        'tokenizer.ggml.tokens',
        { strings: tokens.map((token, i) => (i === 260 ? '' : i === 262 ? '[EMPTY_260]' : token)) },
      ],
      /tokens 260 and 262 have the same text "\[EMPTY_260\]"/,
    ],
    ['the same text up to a zero byte', ['tokenizer.ggml.tokens', withToken(260, 'x\0y')], /the same text "x"/],
    [
      'a byte token with the text of no byte',
      ['tokenizer.ggml.tokens', withToken(68, 'A')],
      /token 68 has the type byte/,
    ],
    ['too few types', ['tokenizer.ggml.token_type', { i32s: [1, 2] }], /an array of 276 i32/],
    ['a BOS that is no token', ['tokenizer.ggml.bos_token_id', { string: 'x' }], /loaded by llama.cpp: .*bos_token_id/],
  ] as const)('refuses %s', async (_, change, message) => {
    await expect(open([change[0], change[1]])).rejects.toThrow(message);
  });

  it('refuses a vocabulary without byte tokens, with which libllama would fail for unknown characters', async () => {
    const pieces = tokens.filter((token) => !token.startsWith('<0x'));
    const types = pieces.map(() => 1);
    await expect(
      open(['tokenizer.ggml.tokens', { strings: pieces }], ['tokenizer.ggml.token_type', { i32s: types }]),
    ).rejects.toThrow(/the token for the byte <0x00> is missing/);
  });
});

describe('the tokenizer of Gemma 4', () => {
  const marks = [
    ['<|turn>', 3],
    ['<turn|>', 3],
    ['<|tool_call>', 4],
    ['<|tool_response>', 4],
    ['</s>', 1],
  ] as const;
  const path = folder.file('gemma4.gguf');
  const open = async (...changes: NonNullable<GgufBytesOptions['keys']>) => {
    writeFileSync(path, ggufBytes({ keys: [...new Map([...gemma4Keys(marks), ...changes])] }));
    return openTokenizer(await readGguf(path));
  };
  const spelled = (tokenizer: Tokenizer, text: string) =>
    Array.from(tokenizer.encode(text, { parseSpecial: true }), (id) =>
      utf8(tokenizer.tokenBytes(id, { special: true })),
    );

  it('merges characters with spaces, keeps line ends apart, and has bytes for unknown characters', async () => {
    const tokenizer = await open();
    expect(spelled(tokenizer, 'the fox  fox')).toEqual(['<bos>', 't', 'h', 'e', ' fox', ' ', ' fox']);
    expect(spelled(tokenizer, 'fox\n\n\n the\n\n\n\n')).toEqual([
      '<bos>',
      'fox',
      '\n\n\n',
      ' the',
      ...Array(4).fill('\n'),
    ]);
    expect(tokenizer.encode('é')).toHaveLength(3);
    expect(spelled(tokenizer, '<|turn>fox<turn|>')).toEqual(['<bos>', '<|turn>', 'fox', '<turn|>']);
    expect(tokenizer.warning).toBeUndefined();
    tokenizer.close();
  });

  it('decodes to the same text, also texts of any length', async () => {
    const tokenizer = await open();
    const long = ['the quick fox '.repeat(20_000), '\n'.repeat(50_000), ' '.repeat(50_000)];
    for (const text of [...texts, ...long, 'x</s>y', ' ▁ '.replace('▁', '')]) {
      expect(tokenizer.decode(tokenizer.encode(text, plain))).toBe(text);
      const whole = libllamaVocabulary(path);
      if (!text.includes('</s>')) expect(tokenizer.encode(text, plain)).toEqual(whole.tokenize(text, false));
      whole.close();
    }
    tokenizer.close();
  });

  it('ends answers with the tokens that llama.cpp knows, and shows the marks of calls', async () => {
    const tokenizer = await open(['tokenizer.ggml.add_bos_token', { bool: false }]);
    const names = tokenizer.eosTokenIds.map((id) => utf8(tokenizer.tokenBytes(id, { special: true })));
    expect(names).toEqual(['<eos>', '<turn|>', '<|tool_response>']);
    const call = tokenizer.encode('<|tool_call>', { ...plain, parseSpecial: true });
    expect(tokenizer.decode(call)).toBe('<|tool_call>');
    // The model needs BOS, so libllama adds it to all texts.
    expect(tokenizer.encode('fox')[0]).toBe(tokenizer.bosTokenId);
    tokenizer.close();
  });

  it('has its own pre-tokenizer, also if the file names another', async () => {
    const tokenizer = await open(['tokenizer.ggml.pre', { string: 'superbpe' }]);
    expect(spelled(tokenizer, 'the fox')).toEqual(['<bos>', 't', 'h', 'e', ' fox']);
    tokenizer.close();
  });

  it('is refused without merges, and without a token for each byte', async () => {
    const keys = gemma4Keys().filter(([key]) => key !== 'tokenizer.ggml.merges');
    writeFileSync(path, ggufBytes({ keys }));
    await expect(readGguf(path).then((file) => openTokenizer(file))).rejects.toThrow(/cannot find tokenizer merges/);
    const tokens = gemma4Keys(marks).flatMap(([, value]) => ('strings' in value ? value.strings : []));
    const renamed = {
      strings: tokens
        .slice(
          0,
          gemma4Keys(marks).flatMap(([key, value]) =>
            key.endsWith('tokens') && 'strings' in value ? value.strings : [],
          ).length,
        )
        .map((text) => (text === '<0x41>' ? '<0x4g>' : text)),
    };
    await expect(open(['tokenizer.ggml.tokens', renamed])).rejects.toThrow(/token 69|byte <0x41>/);
  });
});

describe('a pre-tokenizer', () => {
  const open = async (pre: string | undefined, runLengthMax?: number) => {
    const path = folder.file('pre.gguf');
    writeFileSync(path, ggufBytes({ keys: byteLevelKeys(pre) }));
    return openTokenizer(await readGguf(path), undefined, runLengthMax);
  };

  it('is refused if it is unsupported or unknown', async () => {
    await expect(open('superbpe')).rejects.toMatchObject({ code: 'KVASIR_VOCABULARY_UNSUPPORTED' });
    await expect(open('bogus')).rejects.toThrow(/loaded by llama.cpp: .*unknown pre-tokenizer type: 'bogus'/);
  });

  it('that recurses does not make a control token lose a part to a cut', async () => {
    const lengthMax = 100;
    const tokenizer = await open('tekken', lengthMax);
    const end = '<|im_end|>';
    const id = tokenizer.encode(end, { ...plain, parseSpecial: true })[0]!;
    expect(tokenizer.isControl(id)).toBe(true);
    const plainId = tokenizer.encode('b', plain)[0];
    for (let length = lengthMax - end.length - 1; length <= lengthMax + 1; length++) {
      const text = `${'a'.repeat(length)}${end}b`;
      expect([...tokenizer.encode(text, { ...plain, parseSpecial: true }).slice(-2)]).toEqual([id, plainId]);
      expect(tokenizer.encode(text, plain).includes(id)).toBe(false);
    }
    tokenizer.close();
  });

  it('that the file does not name causes a warning', async () => {
    const warningOf = async (pre: string | undefined) => {
      const tokenizer = await open(pre);
      tokenizer.close();
      return tokenizer.warning;
    };
    expect(await warningOf(undefined)).toMatch(/does not name its pre-tokenizer .*answers may be worse/);
    expect(await warningOf('')).toBeDefined();
    expect(await warningOf('qwen2')).toBeUndefined();
  });
});

const demo = 'models/kvasir-demo.gguf';
describe('the tokenizer of the demo model', () => {
  it('decodes the tokens of texts to the same texts', async () => {
    const tokenizer = await openTokenizer(await readGguf(demo));
    for (const text of texts) expect(tokenizer.decode(tokenizer.encode(text, plain))).toBe(text);
    expect(tokenizer.eosTokenIds).toContain(tokenizer.eosTokenId);
    expect(tokenizer.eosTokenIds.length).toBeGreaterThan(0);
    tokenizer.close();
    tokenizer.close();
    expect(() => tokenizer.encode('a')).toThrow(/closed/);
  });
});

describe.each([
  ['word piece', '[CLS]', '[SEP]'],
  ['unigram', '<s>', '</s>'],
] as const)('the tokenizer of a model with the vocabulary %s', (vocabulary, before, after) => {
  let tokenizer: Tokenizer;
  let libllama: ReturnType<typeof libllamaVocabulary>;
  beforeAll(async () => {
    const path = folder.file(`${vocabulary}.gguf`);
    await writeTinyModel(path, { architecture: 'bert', type: 'F32', layers: 1, vocabulary });
    tokenizer = await openTokenizer(await readGguf(path));
    libllama = libllamaVocabulary(path);
    return () => {
      tokenizer.close();
      libllama.close();
    };
  });

  // The judge of WordPiece is Hugging Face's tokenizers (`word-piece.test.ts`).
  const compared =
    vocabulary === 'word piece'
      ? ['The foxes, sleeping: 3 cats', `${before} in a text ${after}`]
      : [
          ...texts.filter((text) => text !== ''),
          'The foxes, sleeping: 3 cats (of Paris)?',
          'THE QUEEN Äpfel café cafe\u0301  two  spaces',
          `${before} in a text ${after}`,
          'words '.repeat(3000),
          'x'.repeat(20_000),
          'ruins \uD800 of a surrogate',
        ];
  it.each(compared)('encodes text %# as libllama does', (text) => {
    for (const parseSpecial of [false, true]) {
      expect(tokenizer.encode(text, { parseSpecial })).toEqual(libllama.tokenize(text, parseSpecial, true));
      expect(tokenizer.encode(text, { ...plain, parseSpecial })).toEqual(libllama.tokenize(text, parseSpecial));
    }
  });

  it('adds its tokens around a text, and has those of a pair', () => {
    const names = (ids: Iterable<number>) => Array.from(ids, (id) => utf8(tokenizer.tokenBytes(id, { special: true })));
    expect(names(tokenizer.encode('the fox')).map((name) => name.trim())).toEqual([before, 'the', 'fox', after]);
    const { pairTokens } = tokenizer;
    expect([pairTokens.before, pairTokens.between, pairTokens.after].map(names)).toEqual(
      vocabulary === 'unigram' ? [[before], [after, after], [after]] : [[before], [after], []],
    );
  });
});

describe('a damaged vocabulary of a Unigram or WordPiece model', () => {
  const map = characterMap();
  it('is found: a map of characters that refers to what it does not have', () => {
    expect(problemOfCharacterMap(map)).toBeUndefined();
    expect(problemOfCharacterMap(map, { size: 256 })).toContain('refers to entry 2');
    expect(problemOfCharacterMap(map, { size: 600 })).toBe('refers to entry 600 of 600');
    expect(problemOfCharacterMap(map, { lastEnd: -1 })).toBe('has no replacement at 0');
    expect(problemOfCharacterMap(map.slice(0, 100))).toBe('is shorter than it says');
    expect(problemOfCharacterMap(map.slice(0, 3))).toBe('is shorter than it says');
  });

  const tokens = ['<s>', '<pad>', '</s>', '<unk>', '\u2581', 'a'];
  const keys = (model: string): GgufBytesOptions['keys'] => [
    ['general.architecture', { string: 'bert' }],
    ['tokenizer.ggml.model', { string: model }],
    ['tokenizer.ggml.tokens', { strings: tokens }],
  ];
  it.each([
    ['a Unigram vocabulary without scores', keys('t5'), 'KVASIR_METADATA_INVALID', /scores/],
    [
      'a WordPiece vocabulary without its usual ids',
      keys('bert'),
      'KVASIR_VOCABULARY_INVALID',
      /no token with the id 100/,
    ],
  ])('is refused: %s', async (_, given, code, message) => {
    const path = folder.file('damaged.gguf');
    writeFileSync(path, ggufBytes({ ...(given && { keys: given }) }));
    const error = await openTokenizer(await readGguf(path)).catch((reason: unknown) => reason);
    expect(error).toMatchObject({ code, message: expect.stringMatching(message) });
  });
});
