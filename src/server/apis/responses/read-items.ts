import { describeValue } from '../../../base/describe-value.ts';
import { writeExactJson } from '../../../base/exact-json.ts';
import { type FieldReader, shapes } from '../../../base/field-reader.ts';
import { isJsonObject } from '../../../base/json.ts';
import { checkJsonText } from '../../http/json-limits.ts';
import { fieldNotSupported } from '../../http/server-errors.ts';
import type { ConversationItem, ItemText } from './conversation-items.ts';
import { customArguments, shownName } from './tool-names.ts';

const ROLES = ['system', 'developer', 'user', 'assistant'];
/** The parts of texts: of messages, of results and of reasoning. */
const TEXT_PARTS = ['input_text', 'output_text', 'text', 'reasoning_text', 'summary_text'];
const STATUSES = ['in_progress', 'completed', 'incomplete'];

export interface ItemLimits {
  /** The largest number of items, and of parts in all items together: each is at least one token. */
  readonly itemsMax: number;
  /** The stored item to which a reference refers. */
  item(id: string): ConversationItem;
}

interface ReadItems {
  readonly items: ConversationItem[];
  /** Items that have no effect. */
  readonly ignored: readonly string[];
}

/** Steps of tools that other servers run. Their results are in the messages after them. */
const foreignItems = [
  ...['web_search_call', 'file_search_call', 'image_generation_call', 'tool_search_call', 'tool_search_output'],
  'mcp_list_tools',
];

/** The new items of a request: `input` as a text is one message of the user. */
export function readItems(reader: FieldReader, limits: ItemLimits): ReadItems {
  const expected = 'a string, or a list of items';
  const value = reader.required('input', reader.raw('input', shapes.text, shapes.list), expected);
  if (typeof value === 'string') {
    return { items: [{ kind: 'message', role: 'user', text: reader.wellFormed('input', value) }], ignored: [] };
  }
  if (!Array.isArray(value)) throw reader.invalid('input', expected);
  const ignored: string[] = [];
  const read = reader.list('input', itemReader(reader, limits, ignored), { min: 1, max: limits.itemsMax })!;
  return { items: read.filter((item) => item !== undefined), ignored };
}

function itemReader(
  body: FieldReader,
  limits: ItemLimits,
  ignored: string[],
): (item: unknown, name: string) => ConversationItem | undefined {
  const budget: PartBudget = { partsMax: limits.itemsMax, parts: 0 };
  return (item, name) => {
    if (isPlainMessage(item)) return { kind: 'message', role: item.role, text: item.content };
    const reader = body.inside(name, item);
    const type = reader.name('type') ?? 'message';
    if (foreignItems.includes(type)) {
      ignored.push(`${name} (${type})`);
      return undefined;
    }
    const read = itemTypes.get(type);
    if (read === undefined) {
      throw fieldNotSupported({ parameter: name, detail: `: an item of type ${describeValue(type)}` });
    }
    reader.name('id');
    const parsed = read({ reader, budget, limits });
    reader.choice('status', STATUSES);
    reader.finish();
    return parsed;
  };
}

interface ItemToRead {
  readonly reader: FieldReader;
  readonly budget: PartBudget;
  readonly limits: ItemLimits;
}

/** Limits the parts of all items together, because JSON has room for many empty ones. */
interface PartBudget {
  readonly partsMax: number;
  parts: number;
}

const itemReaders: Readonly<Record<string, (item: ItemToRead) => ConversationItem>> = {
  message: (item) => {
    const { reader } = item;
    const role = reader.requiredChoice('role', ROLES);
    // `phase` is a mark of OpenAI's models on their own messages.
    reader.ignore(['phase', 'end_turn']);
    return { kind: 'message', role, ...readText(item, 'content') };
  },
  reasoning: (item) => {
    const { reader } = item;
    const summary = reader.raw('summary', shapes.text, shapes.list) === undefined ? '' : readText(item, 'summary').text;
    const content = reader.raw('content', shapes.text, shapes.list) === undefined ? '' : readText(item, 'content').text;
    reader.ignore(['encrypted_content']);
    return { kind: 'reasoning', text: content === '' ? summary : content };
  },
  function_call: (item) => {
    const { reader } = item;
    const text = reader.required('arguments', reader.string('arguments'), 'a string with JSON');
    checkJsonText(text, reader.pathOf('arguments'));
    return readCall(item, text);
  },
  custom_tool_call: (item) => {
    const { reader } = item;
    return readCall(item, customArguments(reader.required('input', reader.string('input'), 'a string')));
  },
  local_shell_call: ({ reader }) => {
    const callId = reader.name('call_id') ?? reader.name('id');
    const action = reader.required('action', reader.exact('action', shapes.object), 'an object');
    const name = 'local_shell';
    return {
      kind: 'call',
      callId: reader.required('call_id', callId, 'a string'),
      name,
      arguments: writeExactJson(action),
    };
  },
  function_call_output: readResult,
  custom_tool_call_output: readResult,
  local_shell_call_output: readResult,
  item_reference: ({ reader, limits }) =>
    limits.item(reader.required('id', reader.name('id'), 'the id of an item in an earlier response')),
};

/** The name is the one that the model sees. */
function readCall({ reader }: ItemToRead, text: string): ConversationItem {
  const callId = reader.required('call_id', reader.name('call_id'), 'a string');
  const name = reader.required('name', reader.name('name'), 'a string');
  reader.ignore(['caller']);
  return { kind: 'call', callId, name: shownName(name, reader.name('namespace')), arguments: text };
}

/** OpenAI's results of a local shell have the id of their call as `id`. */
function readResult(item: ItemToRead): ConversationItem {
  const { reader } = item;
  const type = reader.name('type');
  const callId = reader.name('call_id') ?? (type === 'local_shell_call_output' ? reader.name('id') : undefined);
  reader.ignore(['caller', 'name', 'namespace']);
  return { kind: 'result', callId: reader.required('call_id', callId, 'a string'), ...readText(item, 'output') };
}

const itemTypes = new Map(Object.entries(itemReaders));

/** Nearly all items are plain messages. Reading 100,000 items field by field would take a second. */
function isPlainMessage(item: unknown): item is { readonly role: string; readonly content: string } {
  if (!isJsonObject(item)) return false;
  for (const name in item) if (name !== 'role' && name !== 'content' && name !== 'type') return false;
  const { role, content, type } = item;
  return (
    (type === undefined || type === 'message') &&
    typeof role === 'string' &&
    ROLES.includes(role) &&
    typeof content === 'string' &&
    !/\p{Surrogate}/u.test(content)
  );
}

/** A string, or a list of text parts. */
function readText({ reader, budget }: ItemToRead, name: string): ItemText {
  const value = reader.required(name, reader.raw(name, shapes.text, shapes.list), 'a string, or a list of text parts');
  if (!Array.isArray(value)) return { text: reader.wellFormed(name, value) };
  budget.parts += value.length;
  if (budget.parts > budget.partsMax) {
    const expected = `a list of parts, at most ${budget.partsMax} of them in all items together`;
    throw reader.invalid(name, expected, `${value.length} parts, which makes ${budget.parts}`);
  }
  const parts = reader.objects(name, readPart)!;
  return parts.length > 1 ? { text: parts.join('\n'), parts } : { text: parts.join('') };
}

function readPart(reader: FieldReader): string {
  const type = reader.required('type', reader.name('type'), '"input_text" or "output_text"');
  if (type === 'refusal') {
    const text = reader.required('refusal', reader.string('refusal'), 'a string');
    reader.finish();
    return text;
  }
  if (!TEXT_PARTS.includes(type)) {
    const detail = `: a part of type ${describeValue(type)} (the model reads text only)`;
    throw fieldNotSupported({ parameter: reader.path, detail });
  }
  const text = reader.required('text', reader.string('text'), 'a string');
  reader.ignore(['annotations', 'logprobs', 'prompt_cache_breakpoint']);
  reader.finish();
  return text;
}
