import { type GgufFile, readGgufBytes } from '../ggml/gguf.ts';

const TOKENS = 'tokenizer.ggml.tokens';
/** Real vocabularies have some megabytes. */
const arrayBytesMax = 2 ** 30;

/**
 * The texts of a vocabulary, as bytes of the file's array. There are up to 260,000 tokens, and a JavaScript string for each of them
 * would take as long as the weights of a small model.
 *
 *     | length (u64) | bytes | length (u64) | bytes | ... | names of empty texts |
 */
export class TokenTexts {
  readonly #bytes: Buffer;
  readonly #starts: Int32Array;
  readonly #ends: Int32Array;
  /** A hash table of tokens, with open addressing: the token and 1, or 0. At least half of it is 0. */
  readonly #places: Int32Array;
  /** The first two tokens that have the same text, if there are such tokens. */
  readonly same: readonly [number, number] | undefined;

  /** @throws KvasirError if the file has no such array */
  static async read(file: GgufFile): Promise<TokenTexts> {
    const { metadata } = file;
    const array = metadata.require(TOKENS, metadata.array(TOKENS));
    if (array.elementType !== 'string' || array.length === 0 || array.byteLength > arrayBytesMax)
      throw metadata.invalid(TOKENS, 'an array of strings');
    return new TokenTexts(Buffer.from((await readGgufBytes(file, array)).buffer), array.length);
  }

  /** `readGguf` has checked that the lengths fit the array. */
  private constructor(array: Buffer, count: number) {
    this.#starts = new Int32Array(count);
    this.#ends = new Int32Array(count);
    const names: Buffer[] = [];
    let namesEnd = array.length;
    for (let id = 0, at = 0; id < count; id++) {
      this.#starts[id] = at + 8;
      at += 8 + array.readUInt32LE(at);
      this.#ends[id] = endOfText(array, this.#starts[id]!, at);
      if (this.#ends[id]! > this.#starts[id]!) continue;
      const name = Buffer.from(`[EMPTY_${id}]`);
      names.push(name);
      this.#starts[id] = namesEnd;
      namesEnd += name.length;
      this.#ends[id] = namesEnd;
    }
    this.#bytes = names.length === 0 ? array : Buffer.concat([array, ...names]);
    this.#places = new Int32Array(2 ** Math.ceil(Math.log2(2 * count)));
    this.same = this.#fill();
  }

  get count(): number {
    return this.#starts.length;
  }

  /** Bytes of the longest text. */
  get bytesMax(): number {
    return this.#ends.reduce((most, end, id) => Math.max(most, end - this.#starts[id]!), 1);
  }

  bytes(id: number): Buffer {
    return this.#bytes.subarray(this.#starts[id], this.#ends[id]);
  }

  /** The token with this text, of a character for each byte. */
  find(text: string): number | undefined {
    const bytes = Buffer.from(text, 'latin1');
    const found = this.#places[this.#placeOf(bytes, 0, bytes.length)]!;
    return found === 0 ? undefined : found - 1;
  }

  /** Returns the first two tokens with the same text. */
  #fill(): [number, number] | undefined {
    for (let id = 0; id < this.count; id++) {
      const place = this.#placeOf(this.#bytes, this.#starts[id]!, this.#ends[id]!);
      const other = this.#places[place]!;
      if (other !== 0) return [other - 1, id];
      this.#places[place] = id + 1;
    }
    return undefined;
  }

  /** Where the table has a token with these bytes, or the free place for it. */
  #placeOf(bytes: Buffer, start: number, end: number): number {
    const mask = this.#places.length - 1;
    let hash = 0x811c9dc5;
    for (let at = start; at < end; at++) hash = Math.imul(hash ^ bytes[at]!, 0x01000193);
    // The low bits of the product depend only on the low bits of the characters.
    let place = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d) >>> 7;
    for (; ; place++) {
      const id = this.#places[place & mask]! - 1;
      if (id < 0 || this.#equals(id, bytes, start, end)) return place & mask;
    }
  }

  #equals(id: number, bytes: Buffer, start: number, end: number): boolean {
    const first = this.#starts[id]!;
    if (this.#ends[id]! - first !== end - start) return false;
    for (let at = start; at < end; at++) if (bytes[at] !== this.#bytes[first + at - start]) return false;
    return true;
  }
}

/** As C reads it: up to the first zero byte. */
function endOfText(bytes: Buffer, start: number, end: number): number {
  for (let at = start; at < end; at++) if (bytes[at] === 0) return at;
  return end;
}
