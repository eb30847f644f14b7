import { assert } from '../base/assert.ts';
import { modelLoadFailed } from '../ggml/errors.ts';
import { loadNative, type ModelPtr, type NativeApi, type VocabPtr } from '../ggml/ffi.ts';
import type { GgufFile } from '../ggml/gguf.ts';
import type { DecodeOptions, EncodeOptions, FimTokens, PairTokens, TokenBytesOptions, Tokenizer } from './contract.ts';
import { type EncodingVocab, TextEncoding } from './encode-text.ts';
import { vocabularyInvalid } from './errors.ts';
import { RUN_LENGTH_MAX } from './long-runs.ts';
import { cutRuleOf, preTokenizerOf } from './pre-tokenizers.ts';
import { specialTokensOf, TokenAttribute } from './special-tokens.ts';
import { StreamDecoder } from './stream-decoder.ts';
import { openTextThread, type TextThread, tokenizeBudgetMs } from './text-thread.ts';
import { type CheckedVocabulary, checkVocabulary, unknownIdOf } from './vocabulary-check.ts';
import type { WordPieceOptions } from './word-piece.ts';

const SPACE = 0x20;
/** `LLAMA_VOCAB_TYPE_WPM` */
const WORD_PIECE = 3;
const NO_BYTES = new Uint8Array(0);
const storageBytes = 4096;
/** Decoding so many tokens takes a few milliseconds. */
const DECODE_PART_TOKENS = 16_384;

/**
 * Opens the vocabulary of a model with libllama, which has every tokenizer of GGUF files. The tokens equal
 * llama.cpp's, but for WordPiece, where it is wrong (`word-piece.ts`). Throws KvasirErrors of `errors.ts` here and in `ggml`. `close` closes the thread too.
 */
export async function openTokenizer(
  file: GgufFile,
  thread = openTextThread(),
  runLengthMax = RUN_LENGTH_MAX,
): Promise<Tokenizer> {
  const vocabulary = await checkVocabulary(file);
  const native = loadNative();
  const model = await native.loadVocabulary(file.path);
  if (model === 0) throw modelLoadFailed({ path: file.path, reason: loadFailure(native, file.path) });
  const vocab = native.llama_model_get_vocab(model);
  const missing = missingSpecialToken(native, vocab);
  if (missing !== undefined) {
    native.llama_model_free(model);
    throw vocabularyInvalid({ path: file.path, problem: `it adds ${missing} to prompts, but has no such token` });
  }
  return new LlamaTokenizer(native, model, vocab, { file, thread, runLengthMax, ...vocabulary });
}

/** Loads the vocabulary again, with the log. Returns the error in it, without the name of the C function. */
function loadFailure(native: NativeApi, path: string): string {
  const model = native.llama_model_load_from_file(path, { ...native.llama_model_default_params(), vocab_only: true });
  if (model !== 0) native.llama_model_free(model);
  const line = native.recentLog().findLast((text) => text.includes('error loading model'));
  return line?.replace(/^.*error loading model:?\s*/, '').trim() ?? 'no reason given';
}

/** libllama asserts that the tokens that it adds exist. */
function missingSpecialToken(native: NativeApi, vocab: VocabPtr): string | undefined {
  if (native.llama_vocab_get_add_bos(vocab) && native.llama_vocab_bos(vocab) < 0) return 'BOS';
  const isWordPiece = native.llama_vocab_type(vocab) === WORD_PIECE;
  if (isWordPiece && native.llama_vocab_bos(vocab) < 0) return 'CLS';
  if (isWordPiece && native.llama_vocab_sep(vocab) < 0) return 'SEP';
  if (isWordPiece) return undefined;
  if (native.llama_vocab_get_add_eos(vocab) && native.llama_vocab_eos(vocab) < 0) return 'EOS';
  return undefined;
}

/** The keys of libllama, with its values for those that the file has not. */
function wordPieceOptions({ metadata }: GgufFile, attributes: Int32Array): WordPieceOptions {
  const normalizes = (name: string): boolean | undefined => metadata.bool(`tokenizer.ggml.normalizer.${name}`);
  const lowercase = normalizes('lowercase') ?? true;
  const controlIds = Array.from(attributes.keys()).filter((id) => (attributes[id]! & TokenAttribute.control) !== 0);
  return {
    lowercase,
    stripAccents: normalizes('strip_accents') ?? lowercase,
    unknownId: unknownIdOf(metadata, attributes.length),
    tokenCount: attributes.length,
    controlIds,
  };
}

/** Only byte-level BPE has pre-tokenizers. */
function missingPreTokenizer({ metadata, path }: GgufFile): string | undefined {
  if (metadata.string('tokenizer.ggml.model') !== 'gpt2' || metadata.string('tokenizer.ggml.pre')) return undefined;
  return `${path} does not name its pre-tokenizer (tokenizer.ggml.pre). Texts are split in llama.cpp's default way, so answers may be worse. Convert the model again, with a new llama.cpp.`;
}

/** From the file's metadata, or found by libllama by their names. */
function fimTokensOf(native: NativeApi, vocab: VocabPtr): FimTokens | undefined {
  const prefix = native.llama_vocab_fim_pre(vocab);
  const suffix = native.llama_vocab_fim_suf(vocab);
  const middle = native.llama_vocab_fim_mid(vocab);
  const repository = native.llama_vocab_fim_rep(vocab);
  const file = native.llama_vocab_fim_sep(vocab);
  if (Math.min(prefix, suffix, middle) < 0) return undefined;
  return { prefix, suffix, middle, ...(repository < 0 ? {} : { repository }), ...(file < 0 ? {} : { file }) };
}

/** What libllama adds to a text. WordPiece always adds CLS, which is its BOS, and SEP. */
function tokensAround(native: NativeApi, vocab: VocabPtr): Pick<EncodingVocab, 'before' | 'after'> {
  const bos = native.llama_vocab_bos(vocab);
  if (native.llama_vocab_type(vocab) === WORD_PIECE) return { before: [bos], after: [native.llama_vocab_sep(vocab)] };
  return {
    before: native.llama_vocab_get_add_bos(vocab) ? [bos] : [],
    after: native.llama_vocab_get_add_eos(vocab) ? [native.llama_vocab_eos(vocab)] : [],
  };
}

/** As llama.cpp's server joins a query and a document. */
function pairTokensOf(native: NativeApi, vocab: VocabPtr): PairTokens {
  const [eos, sep] = [native.llama_vocab_eos(vocab), native.llama_vocab_sep(vocab)];
  const end = native.llama_vocab_get_add_eos(vocab) ? [eos < 0 ? sep : eos] : [];
  const separator = native.llama_vocab_get_add_sep(vocab) ? [sep] : [];
  const known = (ids: readonly number[]): readonly number[] => ids.filter((id) => id >= 0);
  return {
    before: native.llama_vocab_get_add_bos(vocab) ? known([native.llama_vocab_bos(vocab)]) : [],
    between: known([...end, ...separator]),
    after: known(end),
  };
}

interface VocabularySource extends CheckedVocabulary {
  readonly file: GgufFile;
  readonly thread: TextThread;
  readonly runLengthMax: number;
}

class LlamaTokenizer implements Tokenizer {
  readonly vocabSize: number;
  readonly tokenBytesMax: number;
  readonly bosTokenId?: number;
  readonly eosTokenId?: number;
  readonly eosTokenIds: readonly number[];
  readonly fimTokens?: FimTokens;
  readonly pairTokens: PairTokens;
  readonly hasByteTokens: boolean;
  readonly warning?: string;
  readonly #native: NativeApi;
  readonly #vocab: VocabPtr;
  readonly #thread: TextThread;
  /** Text of this file, which libllama takes for a control token that ends answers. */
  readonly #endTag: number | undefined;
  readonly #encoding: TextEncoding;
  readonly #encodingVocab: EncodingVocab;
  /** Cached results of `tokenBytes`, without and with names of control tokens. */
  readonly #bytes: (Uint8Array | undefined)[];
  readonly #bytesWithNames: (Uint8Array | undefined)[];
  /** SentencePiece adds a space before a text when encoding, and removes it when decoding. */
  readonly #addsSpacePrefix: boolean;
  #piece = new Uint8Array(256);
  /** Has the bytes of cached results, as far as it is used. */
  #storage = new Uint8Array(0);
  #storedCount = 0;
  /** Undefined after `close`. */
  #model: ModelPtr | undefined;

  constructor(native: NativeApi, model: ModelPtr, vocab: VocabPtr, source: VocabularySource) {
    const { file, thread, tokenBytesMax, endTag, runLengthMax } = source;
    const { metadata } = file;
    this.#endTag = endTag?.id;
    this.#native = native;
    this.#thread = thread;
    this.tokenBytesMax = tokenBytesMax;
    this.#encoding = new TextEncoding(native);
    this.#model = model;
    this.#vocab = vocab;
    this.vocabSize = native.llama_vocab_n_tokens(vocab);
    this.#bytes = new Array(this.vocabSize);
    this.#bytesWithNames = new Array(this.vocabSize);
    const bos = native.llama_vocab_bos(vocab);
    if (bos >= 0) this.bosTokenId = bos;
    const eos = native.llama_vocab_eos(vocab);
    if (eos >= 0) this.eosTokenId = eos;
    const attributes = new Int32Array(this.vocabSize);
    const ends: number[] = [];
    for (let id = 0; id < this.vocabSize; id++) {
      attributes[id] = native.llama_vocab_get_attr(vocab, id);
      if (id !== endTag?.id && native.llama_vocab_is_eog(vocab, id)) ends.push(id);
    }
    this.eosTokenIds = ends;
    const fimTokens = fimTokensOf(native, vocab);
    if (fimTokens !== undefined) this.fimTokens = fimTokens;
    const warning = missingPreTokenizer(file);
    if (warning !== undefined) this.warning = warning;
    if (endTag !== undefined)
      attributes[endTag.id] = endTag.isUserDefined ? TokenAttribute.userDefined : TokenAttribute.normal;
    const kind = metadata.string('tokenizer.ggml.model');
    this.hasByteTokens = kind === 'llama' || kind === 'gemma4';
    this.pairTokens = pairTokensOf(native, vocab);
    this.#encodingVocab = {
      pointer: vocab,
      cutRule: kind === 'gpt2' || kind === 'gemma4' ? cutRuleOf(preTokenizerOf(file)) : 'never',
      runLengthMax,
      ...(kind === 'bert' ? { wordPiece: wordPieceOptions(file, attributes) } : {}),
      specialTokens: specialTokensOf(attributes, (id) => {
        const text = native.llama_vocab_get_text(vocab, id);
        // The converter writes all but control tokens of WordPiece as words.
        return kind === 'bert' ? text.replace(/^\u2581/, '') : text;
      }),
      hasEndTag: endTag !== undefined,
      ...tokensAround(native, vocab),
    };
    this.#addsSpacePrefix =
      (kind === 'llama' || kind === 't5') && (metadata.bool('tokenizer.ggml.add_space_prefix') ?? true);
  }

  encode(text: string, { addSpecial = true, parseSpecial = false }: EncodeOptions = {}): Int32Array {
    this.#openVocab();
    return this.#encoding.encode(this.#encodingVocab, text, addSpecial, parseSpecial);
  }

  async encodeInBackground(
    text: string,
    { addSpecial = true, parseSpecial = false }: EncodeOptions = {},
    signal?: AbortSignal,
  ): Promise<Int32Array> {
    this.#openVocab();
    const library = this.#native.libraries.llama;
    const vocab = this.#encodingVocab;
    const job = { library, vocab, text, addSpecial, parseSpecial };
    return this.#thread.run(job, { budgetMs: tokenizeBudgetMs(text), signal });
  }

  decode(tokens: ArrayLike<number>, options: DecodeOptions = {}): string {
    return [...this.decodeParts(tokens, options)].join('');
  }

  *decodeParts(tokens: ArrayLike<number>, options: DecodeOptions = {}): Generator<string, void, void> {
    const special = { special: !(options.skipSpecialTokens ?? true) };
    const decoder = new StreamDecoder(this.hasByteTokens);
    let isAtStart = true;
    for (let start = 0; start < tokens.length; start += DECODE_PART_TOKENS) {
      const end = Math.min(start + DECODE_PART_TOKENS, tokens.length);
      const pieces: Uint8Array[] = [];
      for (let at = start; at < end; at++) {
        const id = tokens[at]!;
        const piece = this.tokenBytes(id, special);
        const hasPrefix = isAtStart && this.#addsSpacePrefix && piece[0] === SPACE && !this.isControl(id);
        if (piece.length > 0) isAtStart = false;
        pieces.push(hasPrefix ? piece.subarray(1) : piece);
      }
      const text = decoder.push(Buffer.concat(pieces));
      yield end < tokens.length ? text : text + decoder.flush();
    }
  }

  tokenBytes(id: number, options: TokenBytesOptions = {}): Uint8Array {
    this.#checkId(id);
    const special = id === this.#endTag || (options.special ?? false);
    const cache = special ? this.#bytesWithNames : this.#bytes;
    const known = cache[id];
    if (known !== undefined) return known;
    const bytes = this.#readPiece(id, special);
    cache[id] = bytes;
    return bytes;
  }

  isControl(id: number): boolean {
    this.#checkId(id);
    return id !== this.#endTag && this.#native.llama_vocab_is_control(this.#openVocab(), id);
  }

  isEndOfGeneration(id: number): boolean {
    this.#checkId(id);
    return id !== this.#endTag && this.#native.llama_vocab_is_eog(this.#openVocab(), id);
  }

  close(): void {
    const model = this.#model;
    if (model === undefined) return;
    this.#model = undefined;
    // A call on the thread may still read the vocabulary. `close` does not wait for the call.
    void this.#thread.close().then(() => this.#native.freeVocabulary(model));
  }

  #readPiece(id: number, special: boolean): Uint8Array {
    const read = (): number =>
      this.#native.llama_token_to_piece(this.#openVocab(), id, this.#piece, this.#piece.length, 0, special);
    let length = read();
    if (length < 0) {
      this.#piece = new Uint8Array(-length);
      length = read();
    }
    return length === 0 ? NO_BYTES : this.#stored(this.#piece.subarray(0, length));
  }

  /** A copy in a part of a larger buffer: a buffer for each token would need 200 bytes besides its contents. */
  #stored(bytes: Uint8Array): Uint8Array {
    if (this.#storedCount + bytes.length > this.#storage.length) {
      this.#storage = new Uint8Array(Math.max(storageBytes, bytes.length));
      this.#storedCount = 0;
    }
    const copy = this.#storage.subarray(this.#storedCount, this.#storedCount + bytes.length);
    copy.set(bytes);
    this.#storedCount += bytes.length;
    return copy;
  }

  #checkId(id: number): void {
    assert(Number.isInteger(id) && id >= 0 && id < this.vocabSize, `token ${id} is outside [0, ${this.vocabSize})`);
  }

  #openVocab(): VocabPtr {
    assert(this.#model !== undefined, 'the tokenizer is closed');
    return this.#vocab;
  }
}
