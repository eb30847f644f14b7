/** The tables of docs/api.md against the parsers of requests, and against the fields of OpenAI's client. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { KvasirError } from '../src/base/errors.ts';
import { parseChat, parseCompletion } from '../src/server/apis/openai/parse.ts';
import type { ConversationItem } from '../src/server/apis/responses/conversation-items.ts';
import { parseResponse } from '../src/server/apis/responses/parse-response.ts';
import { previousResponseNotFound } from '../src/server/apis/responses/response-errors.ts';
import { type History, ResponseStore } from '../src/server/apis/responses/response-store.ts';
import type { ParseLimits } from '../src/server/generation/request.ts';
import { errorAnswer } from '../src/server/http/server-errors.ts';

type Fields = Readonly<Record<string, unknown>>;

interface Example {
  readonly value: unknown;
  /** Other fields that the value needs. */
  readonly rest: Fields;
}

interface Row {
  readonly name: string;
  readonly does: string;
  readonly accepted: Example | undefined;
  readonly refused: Example | undefined;
}

const guide = readFileSync('docs/api.md', 'utf8');
const limits: ParseLimits = { vocabSize: 100, maxModelLen: 1000, choicesMax: 8 };

const message: ConversationItem = { kind: 'message', role: 'user', text: 'earlier' };
const store = new ResponseStore(100_000);
store.put({ id: 'resp_1', json: '{}', history: undefined, items: [message], outputItems: new Map() });
const earlier = {
  history: (id: string): History => {
    const history = store.history(id);
    if (history === undefined) throw previousResponseNotFound({ parameter: 'previous_response_id', id });
    return history;
  },
  item: () => message,
};

const endpoints = {
  Completions: { minimal: { prompt: 'a' }, parse: (body: unknown) => parseCompletion(body, limits), shares: true },
  Chats: {
    minimal: { messages: [{ role: 'user', content: 'a' }] },
    parse: (body: unknown) => parseChat(body, limits),
    shares: true,
  },
  Responses: {
    minimal: { input: 'a' },
    parse: (body: unknown) => {
      const parsed = parseResponse(body, limits, earlier);
      // Functions of two results are never equal. `ignored` of the response has that of its chat.
      return { ...parsed, chat: { ...parsed.chat, ignored: [] }, chatOf: undefined };
    },
    shares: false,
  },
} satisfies Record<string, { minimal: Fields; parse(body: unknown): object; shares: boolean }>;
type Endpoint = keyof typeof endpoints;

const section = (title: string): string =>
  guide.split(`\n### ${title}\n`)[1]?.split('\n##')[0] ?? expect.fail(`docs/api.md has no section ${title}`);

function exampleOf(cell: string): Example | undefined {
  const [value, rest = '{}'] = [...cell.matchAll(/`([^`]+)`/g)].map(([, json]) => json!);
  return value === undefined ? undefined : { value: JSON.parse(value), rest: JSON.parse(rest) };
}

function rowsOf(title: string): Row[] {
  const lines = section(title)
    .split('\n')
    .filter((line) => line.startsWith('| `'));
  return lines.flatMap((line) => {
    const [names, does, accepted, refused] = line
      .split('|')
      .slice(1)
      .map((cell) => cell.trim());
    const examples = { does: does!, accepted: exampleOf(accepted!), refused: exampleOf(refused!) };
    return [...names!.matchAll(/`([^`]+)`/g)].map(([, name]) => ({ name: name!, ...examples }));
  });
}

const shared = rowsOf('Completions and chats');

/** The names in the sentence about fields of chats, and all with a warning. */
function fieldsOfChats(): Row[] {
  const [sentence = ''] = section('Responses').split('\n| Field');
  const names = new Set([...sentence.matchAll(/`([^`]+)`/g)].map(([, name]) => name));
  const chats = [...shared, ...rowsOf('Chats')];
  return chats.filter(({ name, does }) => names.has(name) || does === 'warning');
}

const tables: Readonly<Record<Endpoint, readonly Row[]>> = {
  Completions: [...shared, ...rowsOf('Completions')],
  Chats: [...shared, ...rowsOf('Chats')],
  Responses: [...fieldsOfChats(), ...rowsOf('Responses')],
};

function errorOf(work: () => unknown): { param: string | null; code: string | null; message: string } {
  try {
    work();
  } catch (error) {
    expect(error).toBeInstanceOf(KvasirError);
    const { status, body } = errorAnswer(error);
    expect(status).toBe(400);
    return body.error;
  }
  return expect.fail('the parser accepts it');
}

/** The fields that a parser looks for. */
function fieldsRead({ minimal, parse }: (typeof endpoints)[Endpoint]): Set<string> {
  const read = new Set<string>();
  const body = new Proxy<Fields>(minimal, {
    getOwnPropertyDescriptor(target, name) {
      read.add(String(name));
      return Reflect.getOwnPropertyDescriptor(target, name);
    },
  });
  parse(body);
  return read;
}

/** The fields of an interface in the types of OpenAI's client. */
function fieldsOfClient(file: string, name: string): string[] {
  const text = readFileSync(`node_modules/openai/resources/${file}.d.ts`, 'utf8');
  const body = text.split(`export interface ${name} {\n`)[1]!.split('\n}\n')[0]!;
  return [...body.matchAll(/^ {4}(\w+)\??:/gm)].map(([, field]) => field!);
}

const clientTypes: Readonly<Record<Endpoint, readonly [file: string, name: string]>> = {
  Completions: ['completions', 'CompletionCreateParamsBase'],
  Chats: ['chat/completions/completions', 'ChatCompletionCreateParamsBase'],
  Responses: ['responses/responses', 'ResponseCreateParamsBase'],
};

describe.each(Object.keys(endpoints) as Endpoint[])('docs/api.md, %s', (title) => {
  const endpoint = endpoints[title];
  const rows = tables[title];
  const parse = (fields: Fields) => endpoint.parse({ ...endpoint.minimal, ...fields });
  const withField = ({ name }: Row, { value, rest }: Example): Fields => ({ ...rest, [name]: value });

  it('has exactly the fields that the parser reads, each once', () => {
    const names = rows.map(({ name }) => name);
    expect(names).toHaveLength(new Set(names).size);
    expect(new Set(names)).toEqual(fieldsRead(endpoint));
  });

  it("has all fields of OpenAI's client", () => {
    const fields = fieldsOfClient(...clientTypes[title]);
    expect(fields.length).toBeGreaterThan(15);
    const names = new Set(rows.map(({ name }) => name));
    expect(fields.filter((field) => !names.has(field))).toEqual([]);
  });

  it.each(rows.filter(({ does }) => does === 'used'))('$name is used', (row) => {
    expect(row.accepted).toBeDefined();
    const parsed = parse(withField(row, row.accepted!));
    expect(parsed).not.toEqual(parse(row.accepted!.rest));
    expect((parsed as { ignored: readonly string[] }).ignored).toEqual([]);
    expect(errorOf(() => parse(withField(row, row.refused!))).param).toMatch(new RegExp(`^${row.name}\\b`));
  });

  it.each(rows.filter(({ does }) => does === 'no effect'))('$name has no effect', (row) => {
    expect(parse(withField(row, row.accepted!))).toEqual(parse(row.accepted!.rest));
  });

  it.each(rows.filter(({ does }) => does === 'warning'))('$name gives a warning', (row) => {
    expect(parse(withField(row, row.accepted!))).toEqual({ ...parse({}), ignored: [row.name] });
  });

  it.each(rows.filter(({ does }) => does === '400'))('$name is refused', (row) => {
    const { param, code } = errorOf(() => parse(withField(row, row.refused!)));
    expect([param, code]).toEqual([expect.stringMatching(new RegExp(`^${row.name}\\b`)), 'unsupported_parameter']);
    if (row.accepted !== undefined) expect(parse(withField(row, row.accepted))).toEqual(parse({}));
    expect(parse({ [row.name]: null })).toEqual(parse({}));
  });

  it('has a suggestion for each misspelt field', () => {
    for (const { name } of rows) {
      if (name.length < 5) continue;
      const { message: text, code } = errorOf(() => parse({ [`${name}${name.at(-1)}`]: 1 }));
      expect([text, code]).toEqual([expect.stringContaining(`Did you mean \`${name}\`?`), 'unknown_parameter']);
    }
  });
});

it('every row says one of four things', () => {
  const rows = [...shared, ...rowsOf('Completions'), ...rowsOf('Chats'), ...rowsOf('Responses')];
  expect(rows.filter(({ does }) => !['used', 'no effect', 'warning', '400'].includes(does))).toEqual([]);
  expect(rows.length).toBeGreaterThan(150);
});
