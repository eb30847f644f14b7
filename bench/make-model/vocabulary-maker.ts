/**
 * A byte-level BPE vocabulary of any size, as in GPT-2 and Qwen. It has 256 byte tokens, merges learned from a short
 * text, artificial merges up to the size, and eight control tokens, in this order.
 */
export interface Vocabulary {
  readonly tokens: readonly string[];
  /** GGUF's token types: 1 normal, 3 control. */
  readonly types: Int32Array;
  readonly merges: readonly string[];
  readonly endOfText: number;
  readonly endOfTurn: number;
  /** The first of three control tokens without a use. */
  readonly reserved: number;
}

const controlTokens = [
  '<|endoftext|>',
  '<|im_start|>',
  '<|im_end|>',
  '<|tool_start|>',
  '<|tool_end|>',
  '<|reserved_0|>',
  '<|reserved_1|>',
  '<|reserved_2|>',
];

/** ChatML. */
export const CHAT_TEMPLATE =
  "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}" +
  "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/** English, accents, CJK and an emoji, so that merges end inside and between UTF-8 characters. */
const sample =
  'the quick brown fox and the lazy dog went to the river, and then they said that this was the other story. ' +
  'Once upon a time there was a little fox who lived in the forest with her mother. über café naïve — 日本語 日本 🙂🙂 ';

export function makeVocabulary(size: number): Vocabulary {
  const mergeCount = size - 256 - controlTokens.length;
  if (mergeCount < 0) throw new RangeError(`a vocabulary of ${size} has no room for bytes and control tokens`);
  const bytes = byteTokens();
  const tokens = [...bytes];
  const known = new Set(tokens);
  const merges: string[] = [];
  const add = (left: string, right: string): void => {
    if (merges.length === mergeCount || known.has(left + right)) return;
    known.add(left + right);
    tokens.push(left + right);
    merges.push(`${left} ${right}`);
  };
  learnMerges(bytes, mergeCount, add);
  // Every pair, then every pair followed by a byte, ...: each new token is a merge of two that exist.
  for (let from = 0; merges.length < mergeCount; from++) {
    const left = tokens[from] ?? '';
    for (const right of bytes) add(left, right);
  }
  const controlStart = tokens.length;
  tokens.push(...controlTokens);
  const types = new Int32Array(tokens.length).fill(1).fill(3, controlStart);
  return { tokens, types, merges, endOfText: controlStart, endOfTurn: controlStart + 2, reserved: controlStart + 5 };
}

/** BPE training: the most frequent pair becomes a token, until no pair occurs twice. */
function learnMerges(bytes: readonly string[], limit: number, add: (left: string, right: string) => void): void {
  const words = sample
    .split(/(?= )/)
    .map((word) => [...new TextEncoder().encode(word)].map((byte) => bytes[byte] ?? ''));
  for (let i = 0; i < limit; i++) {
    const counts = new Map<string, number>();
    for (const word of words) {
      for (let at = 0; at + 1 < word.length; at++) {
        const pair = `${word[at]} ${word[at + 1]}`;
        counts.set(pair, (counts.get(pair) ?? 0) + 1);
      }
    }
    const best = [...counts].reduce((a, b) => (b[1] > a[1] ? b : a), ['', 1] as const);
    if (best[1] < 2) return;
    const [left = '', right = ''] = best[0].split(' ');
    add(left, right);
    for (const word of words) {
      for (let at = 0; at + 1 < word.length; at++) {
        if (word[at] === left && word[at + 1] === right) word.splice(at, 2, left + right);
      }
    }
  }
}

/** GPT-2's printable characters for the 256 bytes; printable bytes represent themselves. */
function byteTokens(): string[] {
  const isPrintable = (byte: number): boolean =>
    (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(isPrintable(byte) ? byte : next++));
}
