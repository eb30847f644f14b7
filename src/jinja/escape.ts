import { byName } from '../base/by-name.ts';
import { chargeText } from './meter.ts';
import { print } from './print.ts';
import { Markup, type Value } from './values.ts';

const entities: Readonly<Record<string, string>> = byName({
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&#34;',
  "'": '&#39;',
});

/** Text that is safe in HTML. Markup is safe already. */
export const escapeHtml = (value: Value): Markup => (value instanceof Markup ? value : escapeText(print(value)));

export function escapeText(text: string): Markup {
  chargeText(text.length);
  return new Markup(text.replace(/[&<>"']/g, (letter) => entities[letter] ?? letter));
}
