import { describeValue } from '../../../base/describe-value.ts';
import type { JsonObject } from '../../../base/json.ts';
import { invalidParameter } from '../../../core/errors.ts';
import type { ConversationItem, ItemText } from './conversation-items.ts';

/** A page of the input of a response. */
export interface InputItemList {
  readonly object: 'list';
  readonly data: readonly JsonObject[];
  readonly first_id: string | null;
  readonly last_id: string | null;
  readonly has_more: boolean;
}

/** As it stands in the address of a request. A name that stands there twice is a list. */
export type InputItemQuery = Readonly<Record<'order' | 'after' | 'limit', string | readonly string[] | undefined>>;

const limitDefault = 20;
const limitMax = 100;

/**
 * The items of a response's input, without those of the responses that it continues. Items have ids of their own, which are the same for
 * each call.
 * @throws KvasirError `invalidParameter`
 */
export function listInputItems(id: string, input: readonly ConversationItem[], query: InputItemQuery): InputItemList {
  const { order = 'desc', after, limit: asked = `${limitDefault}` } = query;
  if (order !== 'asc' && order !== 'desc') throw wrong('order', '"asc" or "desc"', order);
  const limit = typeof asked === 'string' && /^\d{1,3}$/.test(asked) ? Number(asked) : 0;
  if (limit < 1 || limit > limitMax) throw wrong('limit', `an integer from 1 to ${limitMax}`, asked);
  const items = input.map((item, i) =>
    shownItem(item, `${id.slice(id.indexOf('_') + 1)}${i.toString(16).padStart(5, '0')}`),
  );
  if (order === 'desc') items.reverse();
  const begin = after === undefined ? 0 : items.findIndex((item) => item.id === after) + 1;
  if (after !== undefined && begin === 0) throw wrong('after', 'the id of an item of this list', after);
  const data = items.slice(begin, begin + limit);
  const idOf = (item: JsonObject | undefined): string | null => (item === undefined ? null : String(item.id));
  return {
    object: 'list',
    data,
    first_id: idOf(data[0]),
    last_id: idOf(data.at(-1)),
    has_more: begin + limit < items.length,
  };
}

const wrong = (parameter: string, expected: string, actual: unknown): Error =>
  invalidParameter({ parameter, expected, actual: describeValue(actual) });

function shownItem(item: ConversationItem, suffix: string): JsonObject {
  const status = 'completed';
  if (item.kind === 'reasoning') {
    const content = [{ type: 'reasoning_text', text: item.text }];
    return { id: `rs_${suffix}`, type: 'reasoning', status, summary: [], content };
  }
  if (item.kind === 'call') {
    const { callId, name, arguments: json } = item;
    return { id: `fc_${suffix}`, type: 'function_call', status, call_id: callId, name, arguments: json };
  }
  if (item.kind === 'result') {
    const output = item.parts === undefined ? item.text : partsOf(item, 'user');
    return { id: `fc_${suffix}`, type: 'function_call_output', status, call_id: item.callId, output };
  }
  return { id: `msg_${suffix}`, type: 'message', status, role: item.role, content: partsOf(item, item.role) };
}

const partsOf = ({ text, parts = [text] }: ItemText, role: string): JsonObject[] =>
  parts.map((part) =>
    role === 'assistant'
      ? { type: 'output_text', text: part, annotations: [], logprobs: [] }
      : { type: 'input_text', text: part },
  );
