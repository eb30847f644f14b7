import {
  type CodeRange,
  characters,
  choice,
  classOf,
  codePointMax,
  type Expression,
  empty,
  repeat,
  sequence,
  text,
  without,
} from './expression.ts';
import { parseRegex, wholeRegex } from './regex.ts';

const hex = characters('09', 'af', 'AF');
const special: readonly CodeRange[] = [
  { first: 0, last: 0x1f },
  { first: 0x22, last: 0x22 },
  { first: 0x5c, last: 0x5c },
];
const all: readonly CodeRange[] = [{ first: 0, last: codePointMax }];
/** Characters that need no escape. */
const plainRanges = without(all, special);
export const plainCharacter = classOf(plainRanges);

/** One character of a JSON string. Surrogates come in pairs only, so that every string is well-formed. */
export const stringCharacter = choice(
  plainCharacter,
  sequence(text('\\'), characters('"', '\\', '/', 'b', 'f', 'n', 'r', 't')),
  sequence(text('\\u'), characters('09', 'ac', 'AC', 'ef', 'EF'), hex, hex, hex),
  sequence(text('\\u'), characters('d', 'D'), characters('07'), hex, hex),
  sequence(
    sequence(text('\\u'), characters('d', 'D'), characters('89', 'ab', 'AB'), hex, hex),
    sequence(text('\\u'), characters('d', 'D'), characters('cf', 'CF'), hex, hex),
  ),
);

const quoted = (content: Expression): Expression => sequence(text('"'), content, text('"'));

export const stringOfLength = (min: number, max: number): Expression => quoted(repeat(stringCharacter, min, max));

/** A string that has a match of the pattern, as JSON Schema's `pattern` means it. Throws RegexError. */
export function stringWithPattern(pattern: string): Expression {
  const anyText = repeat(stringCharacter, 0, Infinity);
  return quoted(
    choice(
      ...parseRegex(pattern).map(({ body, isAtStart, isAtEnd }) =>
        sequence(isAtStart ? empty : anyText, asStringContent(body), isAtEnd ? empty : anyText),
      ),
    ),
  );
}

/** The texts of an expression, written as in a JSON string. */
function asStringContent(expression: Expression): Expression {
  switch (expression.kind) {
    case 'text':
      return text(JSON.stringify(expression.text).slice(1, -1));
    case 'class': {
      const plain = without(expression.ranges, special);
      const escaped = without(expression.ranges, plain);
      const options: Expression[] = plain.length === 0 ? [] : [classOf(plain)];
      for (const { first, last } of escaped) {
        for (let code = first; code <= last; code++) options.push(text(escapeOf(code)));
      }
      return choice(...options);
    }
    case 'sequence':
      return sequence(...expression.parts.map(asStringContent));
    case 'choice':
      return choice(...expression.options.map(asStringContent));
    case 'repeat':
      return { ...expression, part: asStringContent(expression.part) };
    default:
      return expression;
  }
}

const escapeOf = (code: number): string => JSON.stringify(String.fromCharCode(code)).slice(1, -1);

/** A key of an object that is not in `names`, written without escapes. */
export function keyExcept(names: readonly string[]): Expression {
  const root: NameNode = { children: new Map(), isName: false };
  for (const name of names) {
    let node = root;
    for (const letter of name) {
      let child = node.children.get(letter);
      if (child === undefined) {
        child = { children: new Map(), isName: false };
        node.children.set(letter, child);
      }
      node = child;
    }
    node.isName = true;
  }
  return quoted(differsFrom(root));
}

interface NameNode {
  readonly children: Map<string, NameNode>;
  isName: boolean;
}

function differsFrom({ children, isName }: NameNode): Expression {
  const taken = [...children.keys()].map((letter) => letter.codePointAt(0)!).sort((a, b) => a - b);
  const others = classOf(
    without(
      plainRanges,
      taken.map((code) => ({ first: code, last: code })),
    ),
  );
  return choice(
    ...(isName ? [] : [empty]),
    sequence(others, repeat(plainCharacter, 0, Infinity)),
    ...[...children]
      .filter(([letter]) => letter !== '"' && letter !== '\\' && letter >= ' ')
      .map(([letter, child]) => sequence(text(letter), differsFrom(child))),
  );
}

const label = '[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?';
const byte = '(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])';
const date = '[0-9]{4}-((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)';
const time = '([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])';
const days = '([0-9]{1,4}Y([0-9]{1,4}M)?([0-9]{1,4}D)?|[0-9]{1,4}M([0-9]{1,4}D)?|[0-9]{1,4}D)';
const hours = 'T([0-9]{1,4}H([0-9]{1,4}M)?([0-9]{1,4}S)?|[0-9]{1,4}M([0-9]{1,4}S)?|[0-9]{1,4}S)';

/** Values of `format` that are enforced; each pattern allows a part of the format's texts. Others are annotations. */
const formats: Readonly<Record<string, string>> = {
  date,
  time,
  'date-time': `(${date})T${time}`,
  duration: `P([0-9]{1,4}W|${days}(${hours})?|${hours})`,
  email: `[A-Za-z0-9_+-]{1,30}(\\.[A-Za-z0-9_+-]{1,30})?@${label}(\\.${label}){1,2}`,
  hostname: `${label}(\\.${label}){0,2}`,
  ipv4: `${byte}(\\.${byte}){3}`,
  ipv6: '[0-9a-fA-F]{1,4}(:[0-9a-fA-F]{1,4}){7}',
  uuid: '[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}',
  uri: `https?://${label}(\\.${label}){0,2}(:[0-9]{1,4})?(/[A-Za-z0-9._~!$&'()*+,;=:@-]*)*(\\?[A-Za-z0-9._~!$&'()*+,;=:@/-]*)?`,
};

export function stringOfFormat(format: string): Expression | undefined {
  const pattern = Object.hasOwn(formats, format) ? formats[format] : undefined;
  return pattern === undefined ? undefined : quoted(wholeRegex(pattern));
}

/** Whether `stringOfFormat` allows the text; true for formats that are annotations. */
export function hasFormat(value: string, format: string): boolean {
  const pattern = Object.hasOwn(formats, format) ? formats[format] : undefined;
  return pattern === undefined || new RegExp(`^(?:${pattern})$`, 'u').test(value);
}
