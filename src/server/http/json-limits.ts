import { type ExactJson, JsonLimitError, readExactJson } from '../../base/exact-json.ts';
import { bodyNotJson, jsonOverLimit } from './server-errors.ts';

/**
 * Reads the JSON of a body within the limits of `exact-json.ts`, because reading blocks the event loop. Nested lists of 8 MiB or
 * as many different field names would take seconds.
 *
 * @throws bodyNotJson
 * @throws jsonOverLimit with the top-level field that exceeds a limit, or `body`.
 */
export function readBodyJson(text: string): ExactJson {
  try {
    return readExactJson(text);
  } catch (error) {
    if (error instanceof JsonLimitError) {
      const { limit, what, position } = error;
      throw jsonOverLimit({ parameter: topLevelField(text.slice(0, position)), limit, what }, error);
    }
    throw bodyNotJson({ reason: jsonFault(error as Error) }, error);
  }
}

/** The answer has only the kind and the position of a fault: the text can be a prompt. */
function jsonFault(error: Error): string {
  const position = /position \d+/.exec(error.message)?.[0];
  if (/end of JSON input/i.test(error.message)) return 'it ends too early';
  return position === undefined ? 'it cannot be parsed' : `it cannot be parsed at ${position}`;
}

/** The last name in the outermost object of a text that is JSON up to its end. */
function topLevelField(text: string): string {
  let level = 0;
  let name = '';
  let string = '';
  for (let at = 0; at < text.length; at++) {
    const letter = text[at]!;
    if (letter === '"') {
      const end = endOfString(text, at + 1);
      string = text.slice(at + 1, Math.min(end, at + 41));
      // The text can end after a name.
      if (level === 1 && end + 1 >= text.length) name = string;
      at = end;
    } else if (letter === ':' && level === 1) name = string;
    else if (letter === '{' || letter === '[') level++;
    else if (letter === '}' || letter === ']') level--;
  }
  return name === '' ? 'body' : name;
}

/** The position of the closing quote, or the end of the text. */
function endOfString(text: string, start: number): number {
  let at = start;
  while (at < text.length && text[at] !== '"') at += text[at] === '\\' ? 2 : 1;
  return at;
}

/** Limits the JSON in a text of the body. Text that is not JSON is accepted. `parameter`: the name of the field. */
export function checkJsonText(text: string, parameter: string): void {
  // A shorter text exceeds no limit.
  if (text.length <= 64) return;
  try {
    readExactJson(text);
  } catch (error) {
    if (!(error instanceof JsonLimitError)) return;
    throw jsonOverLimit({ parameter, limit: error.limit, what: error.what }, error);
  }
}
