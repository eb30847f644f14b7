import { charge } from './meter.ts';
import { space } from './text-split.ts';

export interface WrapStyle {
  readonly width: number;
  readonly breaksLongWords: boolean;
  readonly breaksAtHyphens: boolean;
}

const pieces = new RegExp(`${space}+|[^${space.slice(1)}+`, 'g');
/** After a hyphen between a word and a letter. */
const hyphen = /(?<=[\p{L}\p{N}_]-)(?=\p{L})/u;

/** Python's `textwrap.wrap` for one line. */
export function wrapLine(line: string, { width, breaksLongWords, breaksAtHyphens }: WrapStyle): string[] {
  const chunks = [...line.matchAll(pieces)].flatMap(([piece]) =>
    breaksAtHyphens && piece.includes('-') ? piece.split(hyphen) : [piece],
  );
  const wrapped: string[] = [];
  let current = '';
  const flush = (): void => {
    const text = current.trimEnd();
    if (text !== '') wrapped.push(text);
    current = '';
  };
  chunks.reverse();
  for (let chunk = chunks.pop(); chunk !== undefined; chunk = chunks.pop()) {
    charge(1 + chunk.length / 16);
    if (current === '' && chunk.trim() === '' && wrapped.length > 0) continue;
    if (current.length + chunk.length <= width) {
      current += chunk;
      continue;
    }
    if (chunk.length > width && breaksLongWords) {
      const room = Math.max(1, width - current.length);
      current += chunk.slice(0, room);
      chunks.push(chunk.slice(room));
      flush();
    } else if (current === '') {
      current = chunk;
      flush();
    } else {
      flush();
      chunks.push(chunk);
    }
  }
  flush();
  return wrapped;
}
