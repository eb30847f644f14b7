import { assert } from '../base/assert.ts';
import { modelLoadFailed } from '../ggml/errors.ts';
import { loadNative, type ModelPtr, type NativeApi, type VocabPtr } from '../ggml/ffi.ts';
import type { GgufFile } from '../ggml/gguf.ts';
import type { DecodeOptions, EncodeOptions, TokenBytesOptions, Tokenizer } from './contract.ts';
import { vocabularyInvalid } from './errors.ts';
import { cutLongRuns } from './long-runs.ts';
import { checkVocabulary } from './vocabulary-check.ts';

const SPACE = 0x20;
const NO_BYTES = new Uint8Array(0);

/**
 * Opens the vocabulary of a model by libllama, which knows every tokenizer that GGUF files name, and so gives exactly
 * llama.cpp's tokens. Throws KvasirErrors of `errors.ts` here and in `ggml`.
 */
export async function openTokenizer(file: GgufFile): Promise<Tokenizer> {
  await checkVocabulary(file);
  const native = loadNative();
  const params = { ...native.llama_model_default_params(), vocab_only: true };
  const model = native.llama_model_load_from_file(file.path, params);
  if (model === 0) throw modelLoadFailed({ path: file.path, reason: loadFailure(native) });
  const vocab = native.llama_model_get_vocab(model);
  const missing = missingSpecialToken(native, vocab);
  if (missing !== undefined) {
    native.llama_model_free(model);
    throw vocabularyInvalid({ path: file.path, problem: `it puts ${missing} around prompts, but has no such token` });
  }
  return new LlamaTokenizer(native, model, vocab, file);
}

/** The error that libllama logged, without the name of the C function. */
function loadFailure(native: NativeApi): string {
  const line = native.recentLog().findLast((text) => text.includes('error loading model'));
  return line?.replace(/^.*error loading model:?\s*/, '').trim() ?? 'no reason given';
}

/** libllama asserts that the tokens it is to add exist. */
function missingSpecialToken(native: NativeApi, vocab: VocabPtr): string | undefined {
  if (native.llama_vocab_get_add_bos(vocab) && native.llama_vocab_bos(vocab) < 0) return 'BOS';
  if (native.llama_vocab_get_add_eos(vocab) && native.llama_vocab_eos(vocab) < 0) return 'EOS';
  return undefined;
}

class LlamaTokenizer implements Tokenizer {
  readonly vocabSize: number;
  readonly bosTokenId?: number;
  readonly eosTokenIds: readonly number[];
  readonly chatTemplate?: string;
  readonly #native: NativeApi;
  readonly #vocab: VocabPtr;
  readonly #encoder = new TextEncoder();
  /** Unlike `ignoreBOM: false`, keeps U+FEFF, which is text like any other. */
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  /** What `tokenBytes` answered before, without and with names of control tokens. */
  readonly #bytes: (Uint8Array | undefined)[];
  readonly #bytesWithNames: (Uint8Array | undefined)[];
  readonly #isSentencePiece: boolean;
  /** SentencePiece puts a space before a text when it encodes it, and takes it away when it decodes. */
  readonly #addsSpacePrefix: boolean;
  #tokens = new Int32Array(1024);
  #piece = new Uint8Array(256);
  /** Until `close`. */
  #model: ModelPtr | undefined;

  constructor(native: NativeApi, model: ModelPtr, vocab: VocabPtr, file: GgufFile) {
    const { metadata } = file;
    this.#native = native;
    this.#model = model;
    this.#vocab = vocab;
    this.vocabSize = native.llama_vocab_n_tokens(vocab);
    this.#bytes = new Array(this.vocabSize);
    this.#bytesWithNames = new Array(this.vocabSize);
    const bos = native.llama_vocab_bos(vocab);
    if (bos >= 0) this.bosTokenId = bos;
    const ids = Array.from({ length: this.vocabSize }, (_, id) => id);
    this.eosTokenIds = ids.filter((id) => native.llama_vocab_is_eog(vocab, id));
    const template = metadata.string('tokenizer.chat_template');
    if (template !== undefined) this.chatTemplate = template;
    this.#isSentencePiece = metadata.string('tokenizer.ggml.model') === 'llama';
    this.#addsSpacePrefix = this.#isSentencePiece && (metadata.bool('tokenizer.ggml.add_space_prefix') ?? true);
  }

  encode(text: string, options: EncodeOptions = {}): Int32Array {
    const { addSpecial = true, parseSpecial = false } = options;
    const cuts = this.#isSentencePiece ? [] : cutLongRuns(text);
    if (cuts.length === 0) return this.#tokenize(text, addSpecial, parseSpecial);
    const pieces = [0, ...cuts].map((start, i) => this.#tokenize(text.slice(start, cuts[i]), false, parseSpecial));
    const native = this.#native;
    const vocab = this.#openVocab();
    if (addSpecial && native.llama_vocab_get_add_bos(vocab))
      pieces.unshift(Int32Array.of(native.llama_vocab_bos(vocab)));
    if (addSpecial && native.llama_vocab_get_add_eos(vocab)) pieces.push(Int32Array.of(native.llama_vocab_eos(vocab)));
    return Int32Array.from(pieces.flatMap((piece) => [...piece]));
  }

  #tokenize(text: string, addSpecial: boolean, parseSpecial: boolean): Int32Array {
    // TextEncoder writes U+FFFD where a surrogate has no partner.
    const bytes = this.#encoder.encode(text);
    const tokenize = (): number =>
      this.#native.llama_tokenize(
        this.#openVocab(),
        bytes,
        bytes.length,
        this.#tokens,
        this.#tokens.length,
        addSpecial,
        parseSpecial,
      );
    let count = tokenize();
    if (count < 0) {
      // Negative is the number of tokens that did not fit.
      this.#tokens = new Int32Array(Math.max(-count, this.#tokens.length * 2));
      count = tokenize();
    }
    assert(count >= 0, `llama_tokenize answered ${count} for ${bytes.length} bytes`);
    return this.#tokens.slice(0, count);
  }

  decode(tokens: ArrayLike<number>, options: DecodeOptions = {}): string {
    const special = { special: !(options.skipSpecialTokens ?? true) };
    const pieces = Array.from(tokens, (id) => this.tokenBytes(id, special));
    const bytes = Buffer.concat(pieces);
    const first = pieces.findIndex((piece) => piece.length > 0);
    const hasPrefix = this.#addsSpacePrefix && bytes[0] === SPACE && !this.isControl(tokens[first] ?? 0);
    return this.#decoder.decode(hasPrefix ? bytes.subarray(1) : bytes);
  }

  tokenBytes(id: number, options: TokenBytesOptions = {}): Uint8Array {
    this.#checkId(id);
    const special = options.special ?? false;
    const cache = special ? this.#bytesWithNames : this.#bytes;
    const known = cache[id];
    if (known !== undefined) return known;
    const bytes = this.#readPiece(id, special);
    cache[id] = bytes;
    return bytes;
  }

  isControl(id: number): boolean {
    this.#checkId(id);
    return this.#native.llama_vocab_is_control(this.#openVocab(), id);
  }

  isEndOfGeneration(id: number): boolean {
    this.#checkId(id);
    return this.#native.llama_vocab_is_eog(this.#openVocab(), id);
  }

  close(): void {
    if (this.#model === undefined) return;
    this.#native.llama_model_free(this.#model);
    this.#model = undefined;
  }

  #readPiece(id: number, special: boolean): Uint8Array {
    const read = (): number =>
      this.#native.llama_token_to_piece(this.#openVocab(), id, this.#piece, this.#piece.length, 0, special);
    let length = read();
    if (length < 0) {
      this.#piece = new Uint8Array(-length);
      length = read();
    }
    return length === 0 ? NO_BYTES : this.#piece.slice(0, length);
  }

  #checkId(id: number): void {
    assert(Number.isInteger(id) && id >= 0 && id < this.vocabSize, `token ${id} outside [0, ${this.vocabSize})`);
  }

  #openVocab(): VocabPtr {
    assert(this.#model !== undefined, 'the tokenizer is closed');
    return this.#vocab;
  }
}
