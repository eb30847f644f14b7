import type { AsyncEngine } from '../../engine/contract.ts';

const lenient = new TextDecoder('utf-8', { ignoreBOM: true });
const strict = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** A token in an answer. */
export interface TokenNames {
  /** As text, or as `bytes:\xe2\x80` (OpenAI's format) if the token is only a part of a character. */
  readonly name: string;
  /** The JSON of the name. */
  readonly nameJson: string;
  /** The JSON of the text. Bytes that are not a character are U+FFFD. */
  readonly textJson: string;
  /** The JSON of the list of bytes. */
  readonly bytesJson: string;
}

/** An answer can have the same tokens a million times. */
const known = new WeakMap<AsyncEngine, Map<number, TokenNames>>();
/** Of one engine: about 10 MB. */
const KNOWN_MAX = 65_536;

export function namesOf(engine: AsyncEngine, token: number): TokenNames {
  let names = known.get(engine);
  if (names === undefined) {
    names = new Map();
    known.set(engine, names);
  }
  const found = names.get(token);
  if (found !== undefined) return found;
  if (names.size === KNOWN_MAX) names.clear();
  const bytes = engine.tokenBytes(token);
  const textJson = JSON.stringify(lenient.decode(bytes));
  const name = nameOf(bytes);
  const made = { name, nameJson: JSON.stringify(name), textJson, bytesJson: JSON.stringify(Array.from(bytes)) };
  names.set(token, made);
  return made;
}

function nameOf(bytes: Uint8Array): string {
  try {
    return strict.decode(bytes);
  } catch {
    return `bytes:${Array.from(bytes, (byte) => `\\x${byte.toString(16).padStart(2, '0')}`).join('')}`;
  }
}
