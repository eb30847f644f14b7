import { byName } from '../base/by-name.ts';

/** Texts of `format`. */
const label = '[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?';
/** Letters that all readers of addresses take, and a length that none refuses. */
const atom = "[A-Za-z0-9_+'-]";
const mailbox = `${atom}{1,24}(\\.${atom}{1,19}){0,2}`;
/** Without a limit, so that automata of other patterns can be combined with it. */
const mailHost = '([A-Za-z0-9]+(-[A-Za-z0-9]+)*\\.)+[A-Za-z]{2,}';
const byte = '(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])';
const ipv4 = `${byte}(\\.${byte}){3}`;
/** No year 0, which Python does not have. */
const year = '([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)';
const leapYear = '([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)';
const date = `(${year}-((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)|${leapYear}-02-29)`;
const time = '([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])';
/** As in RFC 3339: no unit is left out between others. Counts are of the size that libraries take. */
const days = '([0-9]{1,4}Y([0-9]{1,5}M([0-9]{1,6}D)?)?|[0-9]{1,5}M([0-9]{1,6}D)?|[0-9]{1,6}D)';
const hours = 'T([0-9]{1,5}H([0-9]{1,6}M([0-9]{1,9}S)?)?|[0-9]{1,6}M([0-9]{1,9}S)?|[0-9]{1,9}S)';
const group = '[0-9a-fA-F]{1,4}';
/** An address of 16 bytes, whole or with one run of zeros left out. */
const ipv6 = `((${group}:){7}${group}|${Array.from(
  { length: 7 },
  (_, before) => `${before === 0 ? '' : `${group}(:${group}){${before - 1}}`}::(${group}(:${group}){0,${5 - before}})?`,
)
  .slice(0, 6)
  .join('|')}|::([fF]{4}:)?${ipv4})`;
const escaped = '%[0-9a-fA-F]{2}';
const inPath = `([A-Za-z0-9._~!$&'()*+,;=:@-]|${escaped})`;
const inQuery = `([A-Za-z0-9._~!$&'()*+,;=:@/?-]|${escaped})`;
const authority = `(([A-Za-z0-9._~!$&'()*+,;=:-]|${escaped})*@)?([A-Za-z0-9._~-]|${escaped})+(:[0-9]{1,5})?`;
/** `letters`: the two last ones. Bits that no byte has are zero. */
const base64 = (letters: string, padding: string): string => {
  const any = `[A-Za-z0-9${letters}]`;
  return `(${any}{4})*(${any}[AQgw](==)${padding}|${any}{2}[AEIMQUYcgkosw048]=${padding})?`;
};
/** `version`: its digit. */
const uuid = (version: string): string => {
  const variant = version.length === 1 ? '[89abAB]' : '[0-9a-fA-F]';
  return `[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-${version}[0-9a-fA-F]{3}-${variant}[0-9a-fA-F]{3}-[0-9a-fA-F]{12}`;
};
const pointerPart = '(/([^~/"\\\\\\u0000-\\u001f]|~[01])*)';

const quantifier = '([*+?]|\\{[0-9]{1,2},?\\})?';
const patternAtom = `([A-Za-z0-9 _/,;:!@#%&=<>'~-]|\\\\[dwsDWS.*+?()\\[\\]{}|^$/\\\\]|\\.|\\[\\^?([A-Za-z0-9_ .,;:@]|\\\\[dws])+\\])${quantifier}`;
const patternGroup = `\\((\\?:)?(${patternAtom})*(\\|(${patternAtom})*)*\\)${quantifier}`;

/** Values of `format` that are enforced; each pattern allows a part of the format's texts. Others are annotations. */
const formats: Readonly<Record<string, string>> = byName({
  date,
  time,
  'date-time': `${date}T${time}`,
  duration: `P([0-9]{1,5}W|${days}(${hours})?|${hours})`,
  email: `${mailbox}@${mailHost}`,
  hostname: `${label}(\\.${label}){0,2}`,
  ipv4,
  ipv6,
  uuid: uuid('[0-9a-fA-F]'),
  ...Object.fromEntries([1, 3, 4, 5, 6, 7, 8].map((version) => [`uuid${version}`, uuid(String(version))])),
  uri: `[A-Za-z][A-Za-z0-9+.-]*:(//(${authority})?(/${inPath}*)*|/?${inPath}+(/${inPath}*)*)(\\?${inQuery}*)?(#${inQuery}*)?`,
  regex: `\\^?(${patternAtom}|${patternGroup})*(\\|(${patternAtom}|${patternGroup})*)*\\$?`,
  byte: base64('+/', ''),
  base64: base64('+/', ''),
  base64url: base64('_-', '?'),
  ipvanyaddress: `(${ipv4}|${ipv6})`,
  ipv4interface: `${ipv4}/([12]?[0-9]|3[0-2])`,
  ipv6interface: `${ipv6}/([1-9]?[0-9]|1[01][0-9]|12[0-8])`,
  decimal: '-?(0|[1-9][0-9]{0,17})(\\.[0-9]{1,18})?',
  'json-pointer': `${pointerPart}*`,
});

/** The pattern of a whole text; undefined for formats that are annotations. */
export const patternOfFormat = (format: string): string | undefined =>
  Object.hasOwn(formats, format) ? `^(?:${formats[format]})$` : undefined;

/** Values of `contentEncoding` that are formats. */
export const isEncoding = (name: string): boolean => name === 'base64' || name === 'base64url';

/** Patterns that libraries write beside a format, that all texts of the format match, and that are large automata. */
const implied: Readonly<Record<string, string>> = byName({
  '^(?=.{1,253}\\.?$)[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\\.[a-zA-Z0-9](?:[-0-9a-zA-Z]{0,61}[0-9a-zA-Z])?)*\\.?$':
    'hostname',
});

export const isImplied = (pattern: string, format: unknown): boolean =>
  Object.hasOwn(implied, pattern) && implied[pattern] === format;
