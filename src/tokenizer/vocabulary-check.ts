import type { GgufFile } from '../ggml/gguf.ts';
import { readGgufNumbers } from '../ggml/gguf.ts';
import { problemOfCharacterMap } from './character-map.ts';
import { vocabularyInvalid, vocabularyUnsupported } from './errors.ts';
import { preTokenizerOf, refusedPreTokenizers } from './pre-tokenizers.ts';
import { TokenTexts } from './token-texts.ts';

const SCORES = 'tokenizer.ggml.scores';
const CHARACTER_MAP = 'tokenizer.ggml.precompiled_charsmap';
/**
 * `tokenizer.ggml.model`: byte-level BPE, SentencePiece's BPE, Gemma 4's BPE with SentencePiece's spaces and byte tokens, WordPiece, and
 * SentencePiece's Unigram.
 */
const kinds = ['gpt2', 'llama', 'gemma4', 'bert', 't5'];

/** The token `</s>` of a file in which it does not end texts. */
export interface EndTag {
  readonly id: number;
  /** It is found in every text. Otherwise it is a token like others. */
  readonly isUserDefined: boolean;
}

export interface CheckedVocabulary {
  /** The largest number of bytes of a token's text. */
  readonly tokenBytesMax: number;
  readonly endTag?: EndTag;
}

/**
 * Checks all that libllama assumes of a vocabulary: for an invalid vocabulary, libllama aborts the process. Throws
 * `vocabularyUnsupported`, `vocabularyInvalid`, `metadataMissing`.
 */
export async function checkVocabulary(file: GgufFile): Promise<CheckedVocabulary> {
  const { metadata, path } = file;
  const kind = metadata.require('tokenizer.ggml.model', metadata.string('tokenizer.ggml.model'));
  if (!kinds.includes(kind)) throw vocabularyUnsupported({ path, found: kind, supported: kinds.join(', ') });
  const pre = preTokenizerOf(file) ?? 'default';
  if (refusedPreTokenizers.has(pre)) {
    throw vocabularyUnsupported({
      path,
      found: `${kind}, ${pre}`,
      supported: `${kinds.join(', ')} with other pre-tokenizers`,
    });
  }
  const texts = await TokenTexts.read(file);
  checkDistinct(path, texts);
  const types = await readTokenTypes(file, texts.count);
  if (types !== undefined) checkByteTokens(path, texts, types, kind);
  if (kind === 'llama' || kind === 'gemma4') checkEveryByteHasToken(path, texts);
  if (kind === 'bert' || kind === 't5') checkSpecialIds(file, kind, texts.count);
  if (kind === 't5') await checkUnigram(file, texts.count);
  // The stored text of a token has at least as many bytes as its decoded text.
  const tokenBytesMax = texts.bytesMax;
  const endTag = endTagOf(file, texts, types);
  return { tokenBytesMax, ...(endTag === undefined ? {} : { endTag }) };
}

/**
 * libllama makes the token `</s>` a control token that ends answers, in every file. In Qwen2.5 it is text, and in Gemma 3 a tag
 * of HTML. Undefined: there is no such token, or it is what libllama makes of it.
 */
function endTagOf({ metadata }: GgufFile, texts: TokenTexts, types: ArrayLike<number> | undefined): EndTag | undefined {
  const id = texts.find('</s>');
  const type = id === undefined ? undefined : types?.[id];
  if (id === undefined || (type !== TokenType.normal && type !== TokenType.userDefined)) return undefined;
  const isEnd = ['eos', 'eot', 'eom'].some((name) => metadata.u32(`tokenizer.ggml.${name}_token_id`) === id);
  return isEnd ? undefined : { id, isUserDefined: type === TokenType.userDefined };
}

/** libllama's own ids, if the file does not name others or names ids that do not exist. */
const usualIds = {
  bert: { unknown: 100, bos: 101, seperator: 102 },
  t5: { unknown: 2 },
} as const;

/** Of WordPiece: an id that does not exist is as none. */
export function unknownIdOf(metadata: GgufFile['metadata'], count: number): number {
  const id = metadata.u32('tokenizer.ggml.unknown_token_id');
  return id !== undefined && id < count ? id : usualIds.bert.unknown;
}

/** libllama writes these tokens without a check. The misspelled name is GGUF's. */
function checkSpecialIds({ metadata, path }: GgufFile, kind: keyof typeof usualIds, count: number): void {
  for (const [name, usual] of Object.entries(usualIds[kind])) {
    const id = metadata.u32(`tokenizer.ggml.${name}_token_id`);
    const isThere = (id !== undefined && id < count) || usual < count;
    if (!isThere)
      throw vocabularyInvalid({ path, problem: `it has no token with the id ${id ?? usual}, its ${name} token` });
  }
}

/** libllama reads one score per token without a check, and throws a C++ exception through C for a wrong map of characters. */
async function checkUnigram(file: GgufFile, count: number): Promise<void> {
  const { metadata, path } = file;
  const scores = metadata.array(SCORES);
  if (scores === undefined || scores.elementType !== 'f32' || scores.length < count) {
    throw metadata.invalid(SCORES, `an array of ${count} f32`);
  }
  const map = metadata.array(CHARACTER_MAP);
  if (map === undefined) return;
  if (map.elementType !== 'i8' && map.elementType !== 'u8') throw metadata.invalid(CHARACTER_MAP, 'an array of bytes');
  const problem = problemOfCharacterMap(Uint8Array.from(await readGgufNumbers(file, map)));
  if (problem !== undefined) throw vocabularyInvalid({ path, problem: `its map of characters ${problem}` });
}

/** libllama asserts that it has as many distinct texts as tokens. */
function checkDistinct(path: string, texts: TokenTexts): void {
  if (texts.same === undefined) return;
  const [other, id] = texts.same;
  const shown = JSON.stringify(texts.bytes(id).toString('utf8').slice(0, 40));
  throw vocabularyInvalid({ path, problem: `tokens ${other} and ${id} have the same text ${shown}` });
}

/** As in `llama_token_type`. */
const TokenType = { normal: 1, userDefined: 4, byte: 6 } as const;

async function readTokenTypes(file: GgufFile, count: number): Promise<ArrayLike<number> | undefined> {
  const { metadata } = file;
  const array = metadata.array('tokenizer.ggml.token_type');
  if (array === undefined) return undefined;
  if (array.elementType !== 'i32' || array.length < count) {
    throw metadata.invalid('tokenizer.ggml.token_type', `an array of ${count} i32`);
  }
  return await readGgufNumbers(file, array);
}

/** A token of type "byte" must have a text like `<0x41>`: libllama reads the digits without a check. WordPiece has no such tokens. */
function checkByteTokens(path: string, texts: TokenTexts, types: ArrayLike<number>, kind: string): void {
  for (let id = 0; id < texts.count; id++) {
    if (types[id] !== TokenType.byte) continue;
    if (kind === 'bert') throw vocabularyInvalid({ path, problem: `token ${id} has the type byte` });
    if (!/^<0x[0-9A-Fa-f]{2}>$/.test(texts.bytes(id).toString('latin1'))) {
      throw vocabularyInvalid({ path, problem: `token ${id} has the type byte, but its text is not like <0x41>` });
    }
  }
}

/**
 * SentencePiece and Gemma 4's BPE encode unknown characters as bytes. If a byte has no token, libllama throws a C++ exception
 * through C, or leaves the byte out.
 */
function checkEveryByteHasToken(path: string, texts: TokenTexts): void {
  for (let byte = 0; byte < 256; byte++) {
    const name = `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`;
    if (texts.find(name) === undefined && texts.find(String.fromCharCode(byte)) === undefined) {
      throw vocabularyInvalid({ path, problem: `the token for the byte ${name} is missing` });
    }
  }
}
