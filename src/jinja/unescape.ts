import { TemplateSyntaxError } from './errors.ts';

const escapes = /\\(?:([\\'"abfnrtv])|(\n)|([0-7]{1,3})|x([\da-fA-F]{2})|u([\da-fA-F]{4})|U([\da-fA-F]{8})|([xuUN])|)/g;

const letters: Readonly<Record<string, string>> = {
  a: '\x07',
  b: '\b',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
  v: '\v',
};

/** The text of a string in Python's notation. Unknown escapes stay as they are. */
export function unescapeText(source: string, line: number): string {
  if (!source.includes('\\')) return source;
  return source.replace(escapes, (...match: string[]) => {
    const [all = '', letter, newline, octal, two, four, eight, broken] = match as (string | undefined)[];
    if (letter !== undefined) return letters[letter] ?? letter;
    if (newline !== undefined) return '';
    if (octal !== undefined) return String.fromCodePoint(Number.parseInt(octal, 8));
    const hex = two ?? four ?? eight;
    if (hex !== undefined) return character(Number.parseInt(hex, 16), line);
    if (broken === 'N') throw new TemplateSyntaxError('names of characters (\\N{...}) are not supported', line);
    if (broken !== undefined) throw new TemplateSyntaxError(`truncated \\${broken} escape`, line);
    return all;
  });
}

function character(code: number, line: number): string {
  if (code > 0x10ffff) throw new TemplateSyntaxError('illegal Unicode character', line);
  return String.fromCodePoint(code);
}
