import { jsonOverLimit } from './server-errors.ts';

/**
 * `JSON.parse` blocks the event loop. It takes seconds for 8 MiB of nested lists or of different field names, and
 * milliseconds for one long text. A body of 100,000 messages with `role` and `content` is within these limits.
 */
export const jsonLimits = {
  levels: 64,
  fieldNames: 4096,
  objects: 2 ** 18,
  strings: 2 ** 19,
} as const;

const quote = 0x22;
const backslash = 0x5c;
const colon = 0x3a;
const openBrace = 0x7b;
const openBracket = 0x5b;
const closeBrace = 0x7d;
const closeBracket = 0x5d;

/**
 * Counts the objects, strings and names that `JSON.parse` would create, in one pass over the bytes. Accepts bytes that
 * are not JSON: the parser reports them.
 *
 * @throws jsonOverLimit with the top-level field that exceeds a limit, or `body`.
 */
export function checkJsonLimits(body: Uint8Array): void {
  const names = new Set<number>();
  let level = 0;
  let objects = 0;
  let strings = 0;
  let start = 0;
  let end = 0;
  let topStart = 0;
  let topEnd = 0;
  const refuse = (limit: number, what: string): Error => {
    const name = new TextDecoder().decode(body.subarray(topStart, Math.min(topEnd, topStart + 40)));
    return jsonOverLimit({ parameter: name === '' ? 'body' : name, limit, what });
  };
  for (let at = 0; at < body.length; at++) {
    switch (body[at]) {
      case quote:
        if (++strings > jsonLimits.strings) throw refuse(jsonLimits.strings, 'strings');
        start = at + 1;
        at = endOfString(body, start);
        end = at;
        break;
      case colon:
        names.add(hashOf(body, start, end));
        if (level === 1) [topStart, topEnd] = [start, end];
        if (names.size > jsonLimits.fieldNames) throw refuse(jsonLimits.fieldNames, 'different field names');
        break;
      case openBrace:
      case openBracket:
        if (++level > jsonLimits.levels) throw refuse(jsonLimits.levels, 'nested levels');
        if (++objects > jsonLimits.objects) throw refuse(jsonLimits.objects, 'objects and lists');
        break;
      case closeBrace:
      case closeBracket:
        level--;
        break;
    }
  }
}

/** The position of the closing quote, or the end of the body. */
function endOfString(body: Uint8Array, start: number): number {
  let at = start;
  while (at < body.length && body[at] !== quote) at += body[at] === backslash ? 2 : 1;
  return at;
}

/** The start value changes with each process, so that no client can prepare names with equal hashes. */
const hashStart = Math.floor(Math.random() * 2 ** 32) | 0;

function hashOf(body: Uint8Array, start: number, end: number): number {
  let hash = hashStart;
  for (let at = start; at < end; at++) hash = Math.imul(hash ^ body[at]!, 16777619);
  return hash;
}
