import { isNumeric, numberOf } from './compare.ts';
import { TemplateError } from './errors.ts';
import { formatNumber, padded } from './format-number.ts';
import { charge, chargeText, checkLength } from './meter.ts';
import { print, quote, represent } from './print.ts';
import { Dict, isText, lettersOf, Tuple, textOf, typeName, Undefined, type Value } from './values.ts';

const directive = /([-+ 0#]*)(\*|\d+)?(?:\.(\*|\d+)?)?([a-zA-Z%])?/y;

/** Python's `%` of a text: `'%s has %5.2f' % (name, number)`. */
export function formatPercent(format: string, values: Value): string {
  chargeText(format.length);
  const given = values instanceof Tuple ? values.items : [values];
  let used = 0;
  const next = (): Value => {
    if (used >= given.length) throw new TemplateError('not enough arguments for format string');
    return given[used++]!;
  };
  let usesNames = false;
  let text = '';
  let at = 0;
  for (let start = format.indexOf('%'); start >= 0; start = format.indexOf('%', at)) {
    charge(1);
    const { name, flags, width, precision, type, end } = readDirective(format, start + 1);
    text += format.slice(at, start);
    at = end;
    if (type === '%') text += '%';
    else {
      const columns = sizeOf(width, next) ?? 0;
      const digits = sizeOf(precision, next);
      usesNames ||= name !== undefined;
      text += one(name === undefined ? next() : named(values, name), type, {
        flags,
        width: columns,
        precision: digits,
      });
    }
    checkLength(text.length);
  }
  const isMapping = !(values instanceof Tuple) && !isText(values) && !isNumeric(values) && values !== null;
  if (!usesNames && !isMapping && used < given.length) {
    throw new TemplateError('not all arguments converted during string formatting');
  }
  return text + format.slice(at);
}

function readDirective(format: string, start: number) {
  let at = start;
  let name: string | undefined;
  if (format[at] === '(') {
    const close = format.indexOf(')', at);
    if (close < 0) throw new TemplateError('incomplete format key');
    name = format.slice(at + 1, close);
    at = close + 1;
  }
  directive.lastIndex = at;
  const [all, flags = '', width, precision, type] = directive.exec(format)!;
  if (type === undefined) throw new TemplateError('incomplete format');
  const isRound = all.includes('.') && precision === undefined;
  return { name, flags, width, precision: isRound ? '0' : precision, type, end: at + all.length };
}

function named(values: Value, name: string): Value {
  if (!(values instanceof Dict)) throw new TemplateError('format requires a mapping');
  const value = values.get(name);
  if (value === undefined) throw new TemplateError(quote(name));
  return value;
}

function sizeOf(text: string | undefined, next: () => Value): number | undefined {
  if (text !== '*') return text === undefined ? undefined : Number(text);
  const value = next();
  if (typeof value !== 'bigint') throw new TemplateError('* wants int');
  return Number(value);
}

interface Layout {
  readonly flags: string;
  readonly width: number;
  readonly precision: number | undefined;
}

function one(value: Value, type: string, { flags, width, precision }: Layout): string {
  const isLeft = flags.includes('-') || width < 0;
  const columns = Math.abs(width);
  if ('sra'.includes(type)) {
    const text = type === 's' ? print(value) : represent(value);
    const cut = precision === undefined ? text : lettersOf(text).slice(0, precision).join('');
    return padded(cut, { width: columns, align: isLeft ? '<' : '>' });
  }
  if (type === 'c' && isText(value)) return padded(textOf(value), { width: columns, align: isLeft ? '<' : '>' });
  if (!'diuoxXeEfFgG'.includes(type)) throw new TemplateError(`unsupported format character '${type}'`);
  if (value instanceof Undefined) return value.fail();
  if (!isNumeric(value)) throw new TemplateError(`%${type} format: a real number is required, not ${typeName(value)}`);
  const sign = flags.includes('+') ? '+' : flags.includes(' ') ? ' ' : '';
  const kind = 'iu'.includes(type) ? 'd' : type;
  const [shownSign, digits] = formatNumber(numberOf(value), {
    type: kind,
    precision,
    sign,
    isAlternate: flags.includes('#'),
  });
  const padsWithZeros = flags.includes('0') && !isLeft;
  const align = isLeft ? '<' : padsWithZeros ? '=' : '>';
  return padded(digits, { sign: shownSign, width: columns, fill: padsWithZeros ? '0' : ' ', align });
}
