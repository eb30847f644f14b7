import { space } from './text-split.ts';

/** What Python's texts say about their characters. */

const all =
  (pattern: RegExp) =>
  (text: string): boolean =>
    pattern.test(text);

export const isAlphabetic = all(/^\p{L}+$/u);
export const isDecimal = all(/^\p{Nd}+$/u);
const digit = '\\p{Nd}²³¹\\u2070\\u2074-\\u2079\\u2080-\\u2089\\u2460-\\u2468\\u2474-\\u247c\\u2488-\\u2490';
export const isDigit = all(new RegExp(`^[${digit}]+$`, 'u'));
export const isNumber = all(/^[\p{N}〇一二三四五六七八九十百千万億]+$/u);
export const isAlphanumeric = all(/^[\p{L}\p{N}]+$/u);
export const isSpace = all(new RegExp(`^${space}+$`));

export const isLower = (text: string): boolean => /\p{Lowercase}/u.test(text) && !/[\p{Uppercase}\p{Lt}]/u.test(text);
export const isUpper = (text: string): boolean => /\p{Uppercase}/u.test(text) && !/[\p{Lowercase}\p{Lt}]/u.test(text);

/** Each run of letters with a case begins with an upper one and goes on with lower ones. */
export const isTitle = (text: string): boolean =>
  /\p{Cased}/u.test(text) && [...text.matchAll(/\p{Cased}+/gu)].every(([run]) => run === titleWord(run));

function titleWord(run: string): string {
  const [first = ''] = run;
  return upperFirst(first) + run.slice(first.length).toLowerCase();
}

/** One character may have several in upper case, of which only the first stays so: `ß` gives `Ss`. */
function upperFirst(letter: string): string {
  const [first = '', ...rest] = letter.toUpperCase();
  return first + rest.join('').toLowerCase();
}

export const titleCase = (text: string): string => text.replace(/\p{Cased}+/gu, titleWord);

export function capitalize(text: string): string {
  const [first = ''] = text;
  return upperFirst(first) + text.slice(first.length).toLowerCase();
}

export const swapCase = (text: string): string =>
  Array.from(text, (letter) => (/\p{Uppercase}/u.test(letter) ? letter.toLowerCase() : letter.toUpperCase())).join('');
