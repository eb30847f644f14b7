import { setImmediate as nextTurn } from 'node:timers/promises';
import { assert } from '../base/assert.ts';
import { allow } from '../core/constraint.ts';
import type { ControlTokens } from './network.ts';
import { allUtf8States, betweenCharacters, isFirstByte, utf8Before, utf8Next } from './utf8-states.ts';

/** What a grammar needs to know of a tokenizer. */
export interface VocabularySource {
  readonly vocabSize: number;
  readonly tokenBytesMax: number;
  readonly eosTokenIds: readonly number[];
  /** The bytes of a token within a text; empty for a control token unless `special` is true. */
  tokenBytes(id: number, options?: { readonly special?: boolean }): Uint8Array;
  isControl(id: number): boolean;
}

/**
 * The tokens of a vocabulary as a tree of their bytes, in depth-first order. Node 0 is the root. `ends[node]` is the first
 * node behind its subtree. The tokens of a subtree are neighbours in `tokens`.
 */
export interface TokenTree {
  readonly bytes: Uint8Array;
  readonly depths: Uint16Array;
  readonly ends: Int32Array;
  /** The tokens of node `i` are `tokens[tokenStarts[i]]` to `tokens[tokenStarts[i + 1] - 1]`. */
  readonly tokenStarts: Int32Array;
  readonly tokens: Int32Array;
  /**
   * The kinds of bytes (`byteKind`) in the subtree without its root, one bit each, and `brokenText` if a token of the subtree does not
   * continue with whole characters after the root, or after the character that the root begins. The last character may be cut.
   */
  readonly kinds: Uint16Array;
  readonly depthMax: number;
}

/** Tokens of up to `plainLengthMax` whole characters that have a meaning neither in a string of JSON nor in text between tags: most tokens. */
export interface PlainTokens {
  readonly tree: TokenTree;
  /** `masks[length]`: the tokens of at most `length` characters. */
  readonly masks: readonly Uint32Array[];
}

export interface Vocabulary {
  readonly source: VocabularySource;
  readonly plain: PlainTokens;
  readonly others: TokenTree;
  readonly controlTokens: ControlTokens;
}

/** Bytes that grammars mostly treat alike: a grammar that allows all bytes of a kind allows whole subtrees. */
export const kindCount = 9;
/** The kind of the bytes of characters that have several. */
export const wideKind = 1;
export const brokenText = 1 << kindCount;
export const byteKinds: Uint8Array = Uint8Array.from({ length: 256 }, (_, byte) => kindOf(byte));

function kindOf(byte: number): number {
  if (byte >= 0x80) return 0;
  if (byte < 0x20) return 1;
  const letter = String.fromCharCode(byte);
  if (/[a-z]/.test(letter)) return 2;
  if (/[A-Z]/.test(letter)) return 3;
  if (/[0-9]/.test(letter)) return 4;
  if (letter === '"') return 5;
  if (letter === '\\') return 6;
  if (letter === '<') return 7;
  return 8;
}

const allKinds = (1 << kindCount) - 1;
const specialKinds = [...'\n"\\<'].reduce((kinds, letter) => kinds | (1 << kindOf(letter.charCodeAt(0))), 0);
export const plainKinds = allKinds & ~specialKinds;
/** Characters of a plain token. Few tokens have more. */
export const plainLengthMax = 24;

/** Tokens between two turns of the event loop: about 2 ms. */
const tokensAtOnce = 2048;

/** Reads a vocabulary in small parts, so that the event loop is never blocked. Takes about 0.5 s for 150,000 tokens. */
export async function readVocabulary(source: VocabularySource): Promise<Vocabulary> {
  const names = new Map<string, number>();
  const eos = new Set(source.eosTokenIds);
  const buckets = new Map<number, number[]>();
  const decoder = new TextDecoder();
  for (let id = 0; id < source.vocabSize; id++) {
    if (id % tokensAtOnce === tokensAtOnce - 1) await nextTurn();
    if (source.isControl(id)) names.set(decoder.decode(source.tokenBytes(id, { special: true })), id);
    const bytes = source.tokenBytes(id);
    if (bytes.length === 0 || eos.has(id)) continue;
    const key = bytes[0]! * 256 + (bytes[1] ?? 0);
    const bucket = buckets.get(key);
    if (bucket === undefined) buckets.set(key, [id]);
    else bucket.push(id);
  }
  const plain = new TreeBuilder();
  const others = new TreeBuilder();
  const masks = Array.from({ length: plainLengthMax + 1 }, () => new Uint32Array((source.vocabSize + 31) >>> 5));
  let added = 0;
  for (const key of [...buckets.keys()].sort((a, b) => a - b)) {
    const ids = buckets.get(key)!;
    ids.sort((a, b) => compareBytes(source.tokenBytes(a), source.tokenBytes(b)) || a - b);
    for (const id of ids) {
      const bytes = source.tokenBytes(id);
      const length = plainLength(bytes);
      (length === undefined ? others : plain).add(bytes, id);
      for (let most = length ?? Infinity; most <= plainLengthMax; most++) allow(masks[most]!, id);
      if (++added % tokensAtOnce === 0) await nextTurn();
    }
  }
  return { source, plain: { tree: plain.finish(), masks }, others: others.finish(), controlTokens: names };
}

/** The characters of a plain token. Undefined for another token. */
function plainLength(bytes: Uint8Array): number | undefined {
  let state = betweenCharacters;
  let length = 0;
  for (const byte of bytes) {
    state = utf8Next[state * 256 + byte]!;
    if (state === -1 || (plainKinds & (1 << byteKinds[byte]!)) === 0) return undefined;
    if (state === betweenCharacters) length++;
  }
  return state === betweenCharacters && length <= plainLengthMax ? length : undefined;
}

function compareBytes(a: Uint8Array, b: Uint8Array): number {
  const shared = Math.min(a.length, b.length);
  for (let i = 0; i < shared; i++) if (a[i] !== b[i]) return a[i]! - b[i]!;
  return a.length - b.length;
}

/** Tokens come in ascending order of their bytes. */
class TreeBuilder {
  readonly #bytes = [0];
  readonly #depths = [0];
  readonly #parents = [-1];
  readonly #ends: number[] = [];
  readonly #tokenStarts = [0];
  readonly #tokens: number[] = [];
  /** The nodes of the last token, from the root. */
  readonly #path = [0];
  #last = new Uint8Array(0);

  add(bytes: Uint8Array, token: number): void {
    let shared = 0;
    while (shared < this.#last.length && shared < bytes.length && this.#last[shared] === bytes[shared]) shared++;
    assert(bytes.length >= this.#last.length || shared < bytes.length, 'tokens come in the order of their bytes');
    while (this.#path.length > shared + 1) this.#ends[this.#path.pop()!] = this.#bytes.length;
    for (let depth = shared; depth < bytes.length; depth++) {
      this.#parents.push(this.#path[this.#path.length - 1]!);
      this.#path.push(this.#bytes.length);
      this.#bytes.push(bytes[depth]!);
      this.#depths.push(depth + 1);
      this.#tokenStarts.push(this.#tokens.length);
    }
    this.#tokens.push(token);
    this.#last = bytes as Uint8Array<ArrayBuffer>;
  }

  finish(): TokenTree {
    for (const node of this.#path) this.#ends[node] = this.#bytes.length;
    this.#tokenStarts.push(this.#tokens.length);
    const kinds = new Uint16Array(this.#bytes.length);
    // The states of UTF-8 from which all of the subtree is read.
    const readable = new Uint8Array(this.#bytes.length).fill(allUtf8States);
    for (let node = kinds.length - 1; node > 0; node--) {
      const parent = this.#parents[node]!;
      const byte = this.#bytes[node]!;
      kinds[parent] = kinds[parent]! | (kinds[node]! & ~brokenText) | (1 << byteKinds[byte]!);
      readable[parent] = readable[parent]! & utf8Before(byte, readable[node]!);
      const after = isFirstByte(byte) ? utf8Next[byte]! : betweenCharacters;
      if ((readable[node]! & (1 << after)) === 0) kinds[node] = kinds[node]! | brokenText;
    }
    return {
      bytes: Uint8Array.from(this.#bytes),
      depths: Uint16Array.from(this.#depths),
      ends: Int32Array.from(this.#ends),
      tokenStarts: Int32Array.from(this.#tokenStarts),
      tokens: Int32Array.from(this.#tokens),
      kinds,
      depthMax: this.#depths.reduce((max, depth) => Math.max(max, depth), 0),
    };
  }
}
