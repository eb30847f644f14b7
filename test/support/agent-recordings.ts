import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** The requests of one run of a real program, which `tools/agents/record.mjs` keeps: its question, and what it sends after the calls of the first answer. */
export interface AgentRecording {
  readonly name: string;
  readonly program: string;
  readonly version: string;
  readonly answer: { readonly thought: string; readonly text: string; readonly calls: readonly string[] };
  readonly requests: readonly AgentRequest[];
}

export interface AgentRequest {
  readonly path: string;
  readonly body: AgentBody;
}

/** A body of any of the APIs; tests read the fields that they name. */
export interface AgentBody {
  readonly [field: string]: unknown;
  readonly system?: Content;
  readonly messages?: readonly Item[];
  readonly input?: readonly Item[];
  readonly tools?: readonly Item[];
}

type Content = string | readonly Item[] | null;

interface Item {
  readonly type?: string;
  readonly role?: string;
  readonly name?: string;
  readonly text?: string;
  readonly content?: Content;
  readonly input?: unknown;
  readonly output?: Content;
  readonly arguments?: string;
  readonly id?: string;
  readonly call_id?: string;
  readonly tool_use_id?: string;
  readonly tool_call_id?: string;
  readonly tool_name?: string;
  readonly tool_calls?: readonly Item[];
  readonly function?: Item;
  readonly tools?: readonly Item[];
}

const folder = 'test/data/agents';

export function readAgentRecordings(): AgentRecording[] {
  return readdirSync(folder)
    .filter((file) => file.endsWith('.json'))
    .map((file) => ({ name: file.slice(0, -'.json'.length), ...JSON.parse(readFileSync(join(folder, file), 'utf8')) }));
}

/** One text of a request that a prompt must have. */
export interface SentText {
  readonly from: 'system' | 'user' | 'assistant' | 'call' | 'result';
  readonly text: string;
  /** Of calls and results: the id of the call. */
  readonly call?: string | undefined;
}

/** The texts of a request in the order in which they are sent. Thoughts are left out. */
export function sentTexts({ system, messages, input }: AgentBody): SentText[] {
  return [...(system === undefined ? [] : [{ role: 'system', content: system }]), ...(messages ?? input ?? [])].flatMap(
    textsOfItem,
  );
}

/** What a prompt lacks of the texts of a request, or has in another order. */
export function faultsOfPrompt(prompt: string, sent: readonly SentText[]): string[] {
  const faults = sent.filter(({ text }) => !prompt.includes(text)).map(({ from, text }) => `no ${from} ${text}`);
  if (faults.length > 0) return faults;
  const calls = sent.filter(({ from }) => from === 'call');
  // The results of parallel calls are sent in the order in which the tools ended.
  const results = calls.flatMap(({ call }) => sent.filter((each) => each.from === 'result' && each.call === call));
  // Some templates collect the texts of the system themselves.
  const others = sent.filter(({ from }) => from !== 'system' && from !== 'call' && from !== 'result');
  for (const part of [others, calls, results]) {
    let at = 0;
    for (const { from, text } of part) {
      const found = prompt.indexOf(text, at);
      if (found < 0) faults.push(`too early: ${from} ${text}`);
      else at = found;
    }
  }
  for (const { text, call } of results) {
    const made = calls.find((each) => each.call === call)!;
    if (prompt.lastIndexOf(text) < prompt.indexOf(made.text)) faults.push(`a result before its call: ${text}`);
  }
  return faults;
}

function textsOfItem(item: Item): SentText[] {
  const { type, role, content, tool_calls: calls = [] } = item;
  if (type === 'function_call') return [callOf(item.call_id, item.name, item.arguments)];
  if (type === 'function_call_output') return resultsOf(item.call_id, item.output);
  if (type === 'reasoning') return [];
  if (role === 'tool') return resultsOf(item.tool_call_id, content);
  const from = role === 'system' || role === 'developer' ? 'system' : role === 'user' ? 'user' : 'assistant';
  const parts = blocksOf(content).flatMap((block): SentText[] => {
    if (block.type === 'tool_use') return [callOf(block.id, block.name, JSON.stringify(block.input))];
    if (block.type === 'tool_result') return resultsOf(block.tool_use_id, block.content);
    return block.text === undefined || isBilling(block.text) ? [] : linesOf(block.text).map((text) => ({ from, text }));
  });
  return [...parts, ...calls.map(({ id, function: called }) => callOf(id, called?.name, called?.arguments))];
}

/** Templates may write a text as JSON, so its lines are compared. */
const linesOf = (text: string): string[] =>
  text
    .split('\n')
    .filter((line) => line.trim() !== '')
    .map((line) => line.trim());

const isBilling = (text: string): boolean => text.startsWith('x-anthropic-billing-header:');

/** The longest string of its arguments: templates write arguments in many forms. */
function callOf(id: string | undefined, name: string | undefined, given = '{}'): SentText {
  const texts = [...given.matchAll(/"((?:[^"\\]|\\.)*)"/g)].map(([, text]) => text!);
  const longest = texts.reduce((best, text) => (text.length > best.length ? text : best), name ?? '');
  return { from: 'call', text: longest, call: id };
}

function resultsOf(call: string | undefined, content: Content | undefined): SentText[] {
  const texts = blocksOf(content).flatMap(({ text, tool_name: tool }) => linesOf(text ?? tool ?? ''));
  return texts.map((text) => ({ from: 'result', text, call }));
}

function blocksOf(content: Content | undefined): readonly Item[] {
  return typeof content === 'string' ? [{ type: 'text', text: content }] : (content ?? []);
}

/** The calls of the answers in a request, with their arguments in the order in which the client sends them. */
export function sentCalls({ messages, input }: AgentBody): { readonly name: string; readonly arguments: object }[] {
  return (messages ?? input ?? []).flatMap((item) => {
    if (item.type === 'function_call') return [readCall(item)];
    const blocks = Array.isArray(item.content) ? (item.content as readonly Item[]) : [];
    const used = blocks
      .filter(({ type }) => type === 'tool_use')
      .map(({ name, input: given }) => ({ name: name!, arguments: given as object }));
    return [...used, ...(item.tool_calls ?? []).map(({ function: called }) => readCall(called!))];
  });
}

const readCall = ({ name, arguments: given }: Item) => ({ name: name!, arguments: JSON.parse(given!) as object });
