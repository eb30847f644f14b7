import type { GgufFile } from '../ggml/gguf.ts';
import { TokenTexts } from './token-texts.ts';

/** The position of the first token that differs between two vocabularies; undefined: all are equal. */
export async function firstDifferentToken(one: GgufFile, other: GgufFile): Promise<number | undefined> {
  const [texts, others] = await Promise.all([TokenTexts.read(one), TokenTexts.read(other)]);
  const count = Math.min(texts.count, others.count);
  for (let id = 0; id < count; id++) if (!texts.bytes(id).equals(others.bytes(id))) return id;
  return texts.count === others.count ? undefined : count;
}
