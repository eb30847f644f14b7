import { ExactNumber } from './exact-json.ts';

const shownMax = 40;

export const shorten = (text: string): string => (text.length <= shownMax ? text : `${text.slice(0, shownMax)}...`);

/**
 * A value as text for an error message: short, and different for values that JSON does not distinguish, such as NaN and
 * null.
 */
export function describeValue(value: unknown): string {
  if (value === undefined) return 'nothing';
  if (typeof value === 'string') return JSON.stringify(shorten(value));
  if (typeof value === 'bigint') return `${value}n`;
  if (value instanceof ExactNumber) return shorten(value.text);
  if (Array.isArray(value)) return 'an array';
  if (value === null || typeof value !== 'object') return typeof value === 'function' ? 'a function' : String(value);
  return 'an object';
}
