import { createHash } from 'node:crypto';
import { readExactJson, writeExactJson } from '../base/exact-json.ts';
import { isJsonObject } from '../base/json.ts';
import type { TemplateMessage } from '../tokenizer/chat-template.ts';
import { type CallWriter, writeCalls } from '../tools/write-calls.ts';
import { callsOf, type TemplateCall, textOf } from './message-texts.ts';

/**
 * How a template takes calls and results.
 *
 *   fields    as fields of messages
 *   texts     calls as texts that the model writes, results as messages of the role `tool`
 *   dialog    both as texts of the assistant and of the user
 */
export type CallForm = FieldForm | { readonly kind: 'texts' | 'dialog' };

export interface FieldForm {
  readonly kind: 'fields';
  /** The arguments are the text of their JSON instead of an object. */
  readonly hasTextArguments: boolean;
  /** Ids have nine letters and digits. */
  readonly hasShortIds: boolean;
  /** Results have the name of their function. */
  readonly hasNames: boolean;
}

const choices = [false, true];
/** In the order in which they are tried: first what clients send. */
export const fieldForms: readonly FieldForm[] = choices.flatMap((hasNames) =>
  choices.flatMap((hasTextArguments) =>
    choices.map((hasShortIds): FieldForm => ({ kind: 'fields', hasTextArguments, hasShortIds, hasNames })),
  ),
);

/** The messages with calls and results in this form. */
export function inForm(messages: readonly TemplateMessage[], form: CallForm, writer: CallWriter): TemplateMessage[] {
  if (form.kind === 'fields') return inFields(messages, form);
  const written = messages.map((message) => withWrittenCalls(message, writer));
  return form.kind === 'texts' ? written : joinResults(written);
}

function inFields(messages: readonly TemplateMessage[], form: FieldForm): TemplateMessage[] {
  const names = new Map<unknown, string>();
  return messages.map((message) => {
    const calls = callsOf(message);
    for (const { id, function: called } of calls) names.set(id, called.name);
    if (calls.length > 0) return { ...message, tool_calls: calls.map((call) => callInForm(call, form)) };
    if (message.role !== 'tool') return message;
    const { tool_call_id: id, name = names.get(id) } = message;
    return {
      ...message,
      ...(form.hasNames && name !== undefined ? { name } : {}),
      ...(form.hasShortIds && typeof id === 'string' ? { tool_call_id: shortId(id) } : {}),
    };
  });
}

function callInForm(call: TemplateCall, { hasTextArguments, hasShortIds }: FieldForm): TemplateCall {
  const { id, function: called } = call;
  const isObject = typeof called.arguments !== 'string';
  return {
    ...call,
    ...(hasShortIds && typeof id === 'string' ? { id: shortId(id) } : {}),
    ...(hasTextArguments && isObject
      ? { function: { ...called, arguments: writeExactJson(called.arguments ?? {}) } }
      : {}),
  };
}

const letters = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';

/** An id with the form of Mistral's, which is a function of the id: the prompts of later turns have the same. */
export function shortId(id: string): string {
  if (/^[a-zA-Z0-9]{9}$/.test(id)) return id;
  const bytes = createHash('sha256').update(id).digest();
  return Array.from({ length: 9 }, (_, i) => letters[bytes.readUInt32BE(3 * i) % letters.length]).join('');
}

/** The calls at the end of the content, as the model writes them. */
function withWrittenCalls(message: TemplateMessage, writer: CallWriter): TemplateMessage {
  const calls = callsOf(message);
  if (calls.length === 0) return message;
  const { tool_calls: _, ...rest } = message;
  const written = writeCalls(
    writer,
    calls.map(({ function: called }) => ({ name: called.name, arguments: argumentsOf(called.arguments) })),
  );
  const text = textOf(message);
  return { ...rest, content: text + (text === '' || writer === 'lfm2' ? '' : '\n') + written };
}

function argumentsOf(given: unknown): unknown {
  if (typeof given !== 'string') return given ?? {};
  try {
    return readExactJson(given);
  } catch {
    return given;
  }
}

/** Results as messages of the user; adjacent ones are one message, because templates may require that roles take turns. */
function joinResults(messages: readonly TemplateMessage[]): TemplateMessage[] {
  const joined: TemplateMessage[] = [];
  let isResult = false;
  for (const message of messages) {
    const wasResult = isResult;
    isResult = message.role === 'tool';
    if (!isResult) joined.push(message);
    else if (!wasResult) joined.push(resultAsText(message));
    else {
      const before = joined.pop()!;
      joined.push({ ...before, content: `${textOf(before)}\n${textOf(resultAsText(message))}` });
    }
  }
  return joined;
}

/** In the words of Hermes, which many models have seen. */
export const resultAsText = (message: TemplateMessage): TemplateMessage => ({
  role: 'user',
  content: `<tool_response>\n${textOf(message)}\n</tool_response>`,
});

/**
 * Calls without an id get one, and adjacent results are in the order of their calls: most templates show no ids, so the order says which
 * call a result answers. Results without an id answer the next calls that have none.
 */
export function orderResults(messages: readonly TemplateMessage[]): TemplateMessage[] {
  const ordered: TemplateMessage[] = [];
  /** The ids of the last calls. */
  let ids: readonly unknown[] = [];
  let results: TemplateMessage[] = [];
  const flush = (): void => {
    ordered.push(...sorted(withIds(results, ids), ids));
    results = [];
  };
  messages.forEach((message, i) => {
    if (message.role === 'tool') {
      results.push(message);
      return;
    }
    flush();
    const calls = callsOf(message).map((call, j) => (hasId(call.id) ? call : { ...call, id: `call_${i}_${j}` }));
    if (calls.length > 0) ids = calls.map(({ id }) => id);
    ordered.push(calls.length > 0 ? { ...message, tool_calls: calls } : message);
  });
  flush();
  return ordered;
}

const hasId = (id: unknown): boolean => id !== undefined && id !== null && id !== '';

function withIds(results: readonly TemplateMessage[], ids: readonly unknown[]): TemplateMessage[] {
  const answered = new Set(results.map(({ tool_call_id: id }) => id));
  const open = ids.filter((id) => !answered.has(id));
  return results.map((result) => {
    if (hasId(result.tool_call_id)) return result;
    const id = open.shift();
    return id === undefined ? result : { ...result, tool_call_id: id };
  });
}

/** Results of no known call stay behind the others. */
function sorted(results: readonly TemplateMessage[], ids: readonly unknown[]): readonly TemplateMessage[] {
  if (results.length < 2) return results;
  const places = new Map(ids.map((id, place) => [id, place]));
  const placeOf = ({ tool_call_id: id }: TemplateMessage): number => places.get(id) ?? ids.length;
  return [...results].sort((a, b) => placeOf(a) - placeOf(b));
}

/** Calls whose ids an earlier answer has get new ones. */
export function withUniqueIds(messages: readonly TemplateMessage[]): TemplateMessage[] {
  const counts = new Map<unknown, number>();
  const nameOf = (id: unknown): unknown => {
    const count = counts.get(id) ?? 1;
    return count === 1 ? id : `${String(id)}_${count}`;
  };
  return messages.map((message) => {
    if (message.role === 'tool') return { ...message, tool_call_id: nameOf(message.tool_call_id) };
    const calls = callsOf(message);
    for (const { id } of calls) counts.set(id, (counts.get(id) ?? 0) + 1);
    return calls.length === 0
      ? message
      : { ...message, tool_calls: calls.map((call) => ({ ...call, id: nameOf(call.id) })) };
  });
}

/** Whether an id is that of several calls. */
export function hasRepeatedIds(messages: readonly TemplateMessage[]): boolean {
  const ids = messages.flatMap((message) => callsOf(message).map(({ id }) => id));
  return new Set(ids).size < ids.length;
}

/**
 * Calls whose arguments are no object have the object `{ input }`, if the template does not take them: a model may write others, or a
 * limit may cut them.
 */
export function withObjects(
  messages: readonly TemplateMessage[],
  takes: (shape: string) => boolean,
): readonly TemplateMessage[] {
  return messages.map((message) => {
    const calls = callsOf(message);
    if (calls.every((call) => isTaken(call, takes))) return message;
    const objects = calls.map((call) => {
      const { function: called } = call;
      return isTaken(call, takes) ? call : { ...call, function: { ...called, arguments: { input: called.arguments } } };
    });
    return { ...message, tool_calls: objects };
  });
}

function isTaken({ function: called }: TemplateCall, takes: (shape: string) => boolean): boolean {
  const given = called.arguments;
  return isJsonObject(given) || takes(typeof given === 'string' ? 'UXTAUXT' : 'UYTAUYT');
}

/** Each call of several in a message of its own, which its result follows. Thoughts and text stay at the first. */
export function splitCalls(messages: readonly TemplateMessage[]): TemplateMessage[] {
  const split: TemplateMessage[] = [];
  for (let i = 0; i < messages.length; i++) {
    const message = messages[i]!;
    const calls = callsOf(message);
    if (calls.length < 2) {
      split.push(message);
      continue;
    }
    let end = i + 1;
    while (messages[end]?.role === 'tool') end++;
    const results = messages.slice(i + 1, end);
    const taken = new Set<TemplateMessage>();
    calls.forEach((call, j) => {
      const own = results.filter((result) => !taken.has(result) && result.tool_call_id === call.id);
      for (const result of own) taken.add(result);
      const { role } = message;
      split.push(j === 0 ? { ...message, tool_calls: [call] } : { role, content: '', tool_calls: [call] }, ...own);
    });
    split.push(...results.filter((result) => !taken.has(result)));
    i += results.length;
  }
  return split;
}

/**
 * Where the text beside a call stays.
 *
 *   before          in a message of its own, with the thoughts
 *   beforeThoughts  in a message of its own; the thoughts stay beside the call
 *   preamble        after the thoughts, as in harmony
 */
export type TextPlace = 'beside' | 'before' | 'beforeThoughts' | 'preamble';

/** In harmony, thoughts are followed by a text for the user, and then by a call. */
const preamble = '<|end|><|start|>assistant<|channel|>commentary<|message|>';

/** Moves the text that is beside the calls of a message. `thoughts`: of the message. */
export function placeText(message: TemplateMessage, thoughts: string, place: TextPlace): TemplateMessage[] {
  const { tool_calls: calls, ...rest } = message;
  if (place === 'beside') return [message];
  if (place === 'before') return [rest, { role: message.role, content: '', tool_calls: calls }];
  if (place === 'beforeThoughts') {
    return [
      { role: message.role, content: textOf(message) },
      { ...message, content: '' },
    ];
  }
  return [
    { role: message.role, reasoning_content: thoughts + preamble + textOf(message), content: '', tool_calls: calls },
  ];
}
