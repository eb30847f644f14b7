/**
 * Text from outside, where people or programs read it line by line: names of fields, files and adapters, values of requests. Characters
 * that end a line, move a terminal's cursor or change the direction of text are escaped as in JSON.
 */
const unsafe = /[\p{Cc}\p{Cs}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/gu;
const unsafeButLines = /(?!\n)[\p{Cc}\p{Cs}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/gu;

/** One line. In JSON, it is the same JSON. */
export const oneLine = (text: string): string => text.replace(unsafe, escaped);

/** Lines, for messages that have several. */
export const plainLines = (text: string): string => text.replace(unsafeButLines, escaped);

/** At most so many UTF-16 units, with the number of those that are left out. */
export const bounded = (text: string, lengthMax: number): string =>
  text.length <= lengthMax
    ? text
    : `${text.slice(0, lengthMax).replace(/[\ud800-\udbff]$/, '')}... (${text.length} characters)`;

function escaped(character: string): string {
  const json = JSON.stringify(character).slice(1, -1);
  return json === character ? `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}` : json;
}
