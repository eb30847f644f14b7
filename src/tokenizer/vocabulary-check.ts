import type { GgufFile } from '../ggml/gguf.ts';
import { readGgufNumbers, readGgufStrings } from '../ggml/gguf.ts';
import { vocabularyInvalid, vocabularyUnsupported } from './errors.ts';
import { refusedPreTokenizers } from './pre-tokenizers.ts';

const TOKENS = 'tokenizer.ggml.tokens';
/** `tokenizer.ggml.model`: byte-level BPE, and SentencePiece. */
const kinds = ['gpt2', 'llama'];
const BYTE_TYPE = 6;

/**
 * Checks all that libllama assumes of a vocabulary: for an invalid vocabulary, libllama aborts the process. Throws
 * `vocabularyUnsupported`, `vocabularyInvalid`, `metadataMissing`.
 *
 * `tokenBytesMax`: the largest number of bytes of a token's text.
 */
export async function checkVocabulary(file: GgufFile): Promise<{ readonly tokenBytesMax: number }> {
  const { metadata, path } = file;
  const kind = metadata.require('tokenizer.ggml.model', metadata.string('tokenizer.ggml.model'));
  if (!kinds.includes(kind)) throw vocabularyUnsupported({ path, found: kind, supported: kinds.join(', ') });
  const pre = metadata.string('tokenizer.ggml.pre') ?? 'default';
  if (refusedPreTokenizers.has(pre)) {
    throw vocabularyUnsupported({
      path,
      found: `${kind}, ${pre}`,
      supported: `${kinds.join(', ')} with other pre-tokenizers`,
    });
  }
  const array = metadata.require(TOKENS, metadata.array(TOKENS));
  if (array.elementType !== 'string' || array.length === 0) throw metadata.invalid(TOKENS, 'an array of strings');
  const texts = cStrings(await readGgufStrings(file, array, 'latin1'));
  const ids = checkDistinct(path, texts);
  await checkByteTokens(file, texts);
  if (kind === 'llama') checkEveryByteHasToken(path, ids);
  // The stored text of a token has at least as many bytes as its decoded text.
  return { tokenBytesMax: texts.reduce((most, text) => Math.max(most, text.length), 1) };
}

/** Strings as C reads them: up to the first zero byte; empty strings get the name that libllama gives them. */
function cStrings(strings: readonly string[]): string[] {
  return strings.map((text, id) => text.split('\0', 1)[0] || `[EMPTY_${id}]`);
}

/** libllama asserts that it has as many distinct texts as tokens. */
function checkDistinct(path: string, texts: readonly string[]): Map<string, number> {
  const ids = new Map<string, number>();
  for (const [id, text] of texts.entries()) {
    const other = ids.get(text);
    if (other !== undefined) {
      const shown = JSON.stringify(Buffer.from(text, 'latin1').toString('utf8').slice(0, 40));
      throw vocabularyInvalid({ path, problem: `tokens ${other} and ${id} have the same text ${shown}` });
    }
    ids.set(text, id);
  }
  return ids;
}

/** A token of type "byte" must have a text like `<0x41>`: libllama reads the digits without a check. */
async function checkByteTokens(file: GgufFile, texts: readonly string[]): Promise<void> {
  const { metadata, path } = file;
  const array = metadata.array('tokenizer.ggml.token_type');
  if (array === undefined) return;
  if (array.elementType !== 'i32' || array.length < texts.length) {
    throw metadata.invalid('tokenizer.ggml.token_type', `an array of ${texts.length} i32`);
  }
  const types = await readGgufNumbers(file, array);
  for (const [id, text] of texts.entries()) {
    if (types[id] === BYTE_TYPE && !/^<0x[0-9A-Fa-f]{2}>$/.test(text)) {
      throw vocabularyInvalid({ path, problem: `token ${id} has the type byte, but its text is not like <0x41>` });
    }
  }
}

/**
 * SentencePiece encodes unknown characters as bytes. If a byte has no token, libllama throws a C++ exception through C.
 */
function checkEveryByteHasToken(path: string, ids: ReadonlyMap<string, number>): void {
  for (let byte = 0; byte < 256; byte++) {
    const name = `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`;
    if (!ids.has(name) && !ids.has(String.fromCharCode(byte))) {
      throw vocabularyInvalid({ path, problem: `the token for the byte ${name} is missing` });
    }
  }
}
