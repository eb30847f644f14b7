import { type GgufFile, readGgufStrings } from '../ggml/gguf.ts';

/** The position of the first token that differs between two vocabularies; undefined: all are equal. */
export async function firstDifferentToken(one: GgufFile, other: GgufFile): Promise<number | undefined> {
  const [tokens, others] = await Promise.all([tokensOf(one), tokensOf(other)]);
  const length = Math.max(tokens.length, others.length);
  for (let token = 0; token < length; token++) if (tokens[token] !== others[token]) return token;
  return undefined;
}

async function tokensOf(file: GgufFile): Promise<string[]> {
  const array = file.metadata.array(TOKENS);
  return array === undefined ? [] : readGgufStrings(file, array, 'latin1');
}

const TOKENS = 'tokenizer.ggml.tokens';
