/** The tokens that libllama finds in a text before anything else, in the order in which it looks for them. */
export interface SpecialTokens {
  readonly ids: readonly number[];
  /** The longest first. */
  readonly texts: readonly string[];
  /** Bits of `TokenFlag`. */
  readonly flags: readonly number[];
}

export const TokenFlag = { onlyIfParsed: 1, stripLeft: 2, stripRight: 4 } as const;

/** A part of a text, or the id of the special token at its place. */
export type TextPart = string | number;

/** What libllama says of a token, as in `llama_token_attr`. */
export const TokenAttribute = {
  unknown: 1,
  normal: 4,
  control: 8,
  userDefined: 16,
  stripLeft: 128,
  stripRight: 256,
} as const;

/** `attributes`: of each token. */
export function specialTokensOf(attributes: ArrayLike<number>, textOf: (id: number) => string): SpecialTokens {
  const { unknown, control, userDefined, stripLeft, stripRight } = TokenAttribute;
  const tokens: { id: number; text: string; flags: number; bytes: number }[] = [];
  for (let id = 0; id < attributes.length; id++) {
    const bits = attributes[id]!;
    if ((bits & (unknown | control | userDefined)) === 0) continue;
    const text = textOf(id);
    const flags =
      ((bits & (unknown | control)) === 0 ? 0 : TokenFlag.onlyIfParsed) |
      ((bits & stripLeft) === 0 ? 0 : TokenFlag.stripLeft) |
      ((bits & stripRight) === 0 ? 0 : TokenFlag.stripRight);
    if (text !== '') tokens.push({ id, text, flags, bytes: Buffer.byteLength(text) });
  }
  // Tokens of equal length have no defined order in libllama. It matters only if two of them want the same characters.
  tokens.sort((a, b) => b.bytes - a.bytes || b.text.length - a.text.length);
  return {
    ids: tokens.map(({ id }) => id),
    texts: tokens.map(({ text }) => text),
    flags: tokens.map(({ flags }) => flags),
  };
}

/**
 * Splits a text at its special tokens as libllama does: it looks for one token after the other, the longest first, in
 * what the tokens before have left. libllama's own time grows with the square of the number of tokens that it finds.
 *
 * `parseSpecial`: also control tokens. Tokens that the user defined are always found.
 */
export function splitAtSpecialTokens(text: string, tokens: SpecialTokens, parseSpecial: boolean): TextPart[] {
  const wanted = tokens.texts.flatMap((_, i) =>
    parseSpecial || !has(tokens.flags[i]!, TokenFlag.onlyIfParsed) ? [i] : [],
  );
  const places = placesToLook(text, tokens, wanted);
  const found = new FoundTokens(text);
  for (const group of groupsOfEqualLength(tokens, wanted)) {
    for (const { index, at } of occurrences(text, places, group)) {
      found.take(at, tokens.texts[index]!.length, tokens.ids[index]!, tokens.flags[index]!);
    }
  }
  return found.parts();
}

/** The positions of characters with which a token begins: few in most texts. */
function placesToLook(text: string, { texts }: SpecialTokens, wanted: readonly number[]): number[] {
  const begins = new Uint8Array(1 << 16);
  for (const index of wanted) begins[texts[index]!.charCodeAt(0)] = 1;
  const places: number[] = [];
  for (let at = 0; at < text.length; at++) if (begins[text.charCodeAt(at)] === 1) places.push(at);
  return places;
}

interface TokenGroup {
  readonly length: number;
  /** The index of each token, by its text. */
  readonly indices: Map<string, number>;
}

function groupsOfEqualLength({ texts }: SpecialTokens, wanted: readonly number[]): TokenGroup[] {
  const groups: TokenGroup[] = [];
  for (const index of wanted) {
    const text = texts[index]!;
    if (groups.at(-1)?.length !== text.length) groups.push({ length: text.length, indices: new Map() });
    groups.at(-1)!.indices.set(text, index);
  }
  return groups;
}

/** In the order in which libllama looks for the tokens, and each from the left. */
function occurrences(text: string, places: readonly number[], { length, indices }: TokenGroup) {
  const found: { readonly index: number; readonly at: number }[] = [];
  for (const at of places) {
    const index = indices.get(text.slice(at, at + length));
    if (index !== undefined) found.push({ index, at });
  }
  return indices.size === 1 ? found : found.sort((a, b) => a.index - b.index || a.at - b.at);
}

/** The tokens that were found in a text. No two overlap. */
class FoundTokens {
  readonly #text: string;
  readonly #isTaken: Uint8Array;
  readonly #spans: { readonly start: number; readonly end: number; readonly id: number }[] = [];

  constructor(text: string) {
    this.#text = text;
    this.#isTaken = new Uint8Array(text.length);
  }

  /** Does nothing if a token has taken a part of the place. */
  take(at: number, length: number, id: number, flags: number): void {
    let start = at;
    let end = at + length;
    for (let i = start; i < end; i++) if (this.#isTaken[i] === 1) return;
    if (has(flags, TokenFlag.stripLeft)) while (start > 0 && this.#isFreeSpace(start - 1)) start--;
    if (has(flags, TokenFlag.stripRight)) while (end < this.#text.length && this.#isFreeSpace(end)) end++;
    this.#isTaken.fill(1, start, end);
    this.#spans.push({ start, end, id });
  }

  parts(): TextPart[] {
    const parts: TextPart[] = [];
    let end = 0;
    for (const span of this.#spans.sort((a, b) => a.start - b.start)) {
      if (span.start > end) parts.push(this.#text.slice(end, span.start));
      parts.push(span.id);
      end = span.end;
    }
    if (end < this.#text.length) parts.push(this.#text.slice(end));
    return parts;
  }

  #isFreeSpace(at: number): boolean {
    const code = this.#text.charCodeAt(at);
    return this.#isTaken[at] === 0 && (code === 0x20 || (code >= 0x09 && code <= 0x0d));
  }
}

const has = (flags: number, flag: number): boolean => (flags & flag) !== 0;
