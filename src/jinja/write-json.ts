import { compare } from './compare.ts';
import { TemplateError } from './errors.ts';
import { charge, chargeText, joinTexts } from './meter.ts';
import { printFloat } from './print.ts';
import { Dict, isList, isText, Tuple, textOf, typeName, type Value } from './values.ts';

export interface JsonStyle {
  readonly ensureAscii: boolean;
  /** Undefined: on one line. */
  readonly indent: string | undefined;
  readonly itemSeparator: string;
  readonly keySeparator: string;
  readonly sortKeys: boolean;
}

/** Python's `json.dumps`. */
export function writeJson(value: Value, style: JsonStyle, line = '\n'): string {
  charge(1);
  if (value === null || typeof value === 'boolean') return String(value);
  if (typeof value === 'bigint') return String(value);
  if (typeof value === 'number') return jsonFloat(value);
  if (isText(value)) return jsonText(textOf(value), style.ensureAscii);
  const inner = line + (style.indent ?? '');
  if (isList(value) || value instanceof Tuple) {
    const items = isList(value) ? value : value.items;
    return enclosed(
      ['[', ']'],
      items.map((item) => writeJson(item, style, inner)),
      style,
      line,
    );
  }
  if (value instanceof Dict) {
    const fields = entriesOf(value, style).map(
      ([key, item]) =>
        `${jsonText(keyText(key), style.ensureAscii)}${style.keySeparator}${writeJson(item, style, inner)}`,
    );
    return enclosed(['{', '}'], fields, style, line);
  }
  throw new TemplateError(`Object of type ${typeName(value)} is not JSON serializable`);
}

function enclosed(
  [open, close]: readonly [string, string],
  items: readonly string[],
  style: JsonStyle,
  line: string,
): string {
  if (items.length === 0) return open + close;
  if (style.indent === undefined) return open + joinTexts(style.itemSeparator, items) + close;
  const inner = line + style.indent;
  return open + inner + joinTexts(style.itemSeparator + inner, items) + line + close;
}

function entriesOf(dict: Dict, { sortKeys }: JsonStyle): readonly (readonly [Value, Value])[] {
  const entries = [...dict.entries()];
  return sortKeys ? entries.sort(([a], [b]) => compare(a, b, '<')) : entries;
}

function keyText(key: Value): string {
  if (isText(key)) return textOf(key);
  if (key === null || typeof key === 'boolean' || typeof key === 'bigint') return String(key);
  if (typeof key === 'number') return jsonFloat(key);
  throw new TemplateError(`keys must be str, int, float, bool or None, not ${typeName(key)}`);
}

function jsonFloat(value: number): string {
  if (Number.isNaN(value)) return 'NaN';
  return Number.isFinite(value) ? printFloat(value) : String(value);
}

function jsonText(text: string, ensureAscii: boolean): string {
  chargeText(text.length);
  const json = JSON.stringify(text);
  if (!ensureAscii) return json;
  return json.replace(/[\u0080-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
