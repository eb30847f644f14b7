import { charge } from './meter.ts';
import { space } from './text-split.ts';

export interface WrapStyle {
  readonly width: number;
  readonly breaksLongWords: boolean;
  readonly breaksAtHyphens: boolean;
}

const pieces = new RegExp(`${space}+|[^${space.slice(1)}+`, 'g');
const hyphenated = /[^-]*[\p{L}\d_]-(?=\p{L})|.+/gsu;

/** Python's `textwrap.wrap` for one line. */
export function wrapLine(line: string, { width, breaksLongWords, breaksAtHyphens }: WrapStyle): string[] {
  const chunks = [...line.matchAll(pieces)].flatMap(([piece]) =>
    breaksAtHyphens && piece.includes('-') ? (piece.match(hyphenated) ?? []) : [piece],
  );
  const wrapped: string[] = [];
  let current = '';
  const flush = (): void => {
    const text = current.trimEnd();
    if (text !== '') wrapped.push(text);
    current = '';
  };
  for (let chunk = chunks.shift(); chunk !== undefined; chunk = chunks.shift()) {
    charge(1 + chunks.length / 64);
    if (current === '' && chunk.trim() === '' && wrapped.length > 0) continue;
    if (current.length + chunk.length <= width) {
      current += chunk;
      continue;
    }
    if (chunk.length > width && breaksLongWords) {
      const room = Math.max(1, width - current.length);
      current += chunk.slice(0, room);
      chunks.unshift(chunk.slice(room));
      flush();
    } else if (current === '') {
      current = chunk;
      flush();
    } else {
      flush();
      chunks.unshift(chunk);
    }
  }
  flush();
  return wrapped;
}
