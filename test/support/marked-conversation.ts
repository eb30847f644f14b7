import fc from 'fast-check';
import type { TemplateMessage } from '../../src/tokenizer/chat-template.ts';
import type { ChatPath } from './prompt-of-request.ts';

/** A part of a conversation. The texts are markers, so that a prompt shows which of them it has. */
export type Block =
  | { readonly kind: 'system' | 'developer' | 'user'; readonly text: string }
  | { readonly kind: 'answer'; readonly text: string; readonly thoughts?: string }
  | {
      readonly kind: 'calls';
      readonly text: string;
      readonly thoughts?: string;
      readonly calls: readonly { readonly id: string; readonly argument: string; readonly result: string }[];
      /** The places of the results in the order in which a client sends them. */
      readonly order: readonly number[];
    };

export const markedTool = {
  type: 'function',
  function: {
    name: 'look_up',
    description: 'Looks a word up.',
    parameters: {
      type: 'object',
      properties: { word: { type: 'string', description: 'The word.' } },
      required: ['word'],
    },
  },
} as const;

/**
 * Blocks by letters: S, D, U, A; H an answer with thoughts. For calls a number of them, with T for a text beside them, H for thoughts,
 * and R if their results come in the opposite order: `['S', 'U', 'TH2R']`.
 */
export function blocksOf(letters: readonly string[], hasShortIds = false): Block[] {
  let marks = 0;
  let ids = 0;
  const mark = (): string => `qz${(1000 + marks++).toString(36)}zq`;
  const nextId = (): string =>
    hasShortIds ? `abc${String(ids++).padStart(6, '0')}` : `toolu_01${String(ids++).padStart(20, 'x')}`;
  const systems = { S: 'system', D: 'developer', U: 'user' } as const;
  return letters.map((letter): Block => {
    const kind = systems[letter as keyof typeof systems];
    if (kind !== undefined) return { kind, text: mark() };
    const thoughts = letter.includes('H') ? { thoughts: mark() } : {};
    if (!/\d/.test(letter)) return { kind: 'answer', text: mark(), ...thoughts };
    const count = Number(/\d/.exec(letter)![0]);
    const text = letter.includes('T') ? mark() : '';
    const calls = Array.from({ length: count }, () => ({
      id: nextId(),
      argument: mark(),
      result: mark(),
    }));
    const order = calls.map((_, i) => (letter.includes('R') ? count - 1 - i : i));
    return { kind: 'calls', text, ...thoughts, calls, order };
  });
}

const turns = ['S', 'D', 'U', 'U', 'U', 'A', 'A', 'H', '1', 'T1', 'H1', 'TH1', '2', 'T2R', 'TH2R', '3R'];

export const anyLetters: fc.Arbitrary<string[]> = fc.array(fc.constantFrom(...turns), { minLength: 1, maxLength: 9 });

export const hasCalls = (blocks: readonly Block[]): boolean => blocks.some(({ kind }) => kind === 'calls');

/** As a client of the library or of OpenAI's API sends the blocks. */
export function messagesOf(blocks: readonly Block[]): TemplateMessage[] {
  return blocks.flatMap((block): TemplateMessage[] => {
    if (block.kind !== 'answer' && block.kind !== 'calls') return [{ role: block.kind, content: block.text }];
    const { text, thoughts } = block;
    const answer = {
      role: 'assistant',
      content: text,
      ...(thoughts === undefined ? {} : { reasoning_content: thoughts }),
    };
    if (block.kind === 'answer') return [answer];
    const { name } = markedTool.function;
    const tool_calls = block.calls.map(({ id, argument }) => ({
      id,
      type: 'function',
      function: { name, arguments: { word: argument } },
    }));
    const results = block.order.map((i) => {
      const { id, result } = block.calls[i]!;
      return { role: 'tool', tool_call_id: id, content: result };
    });
    return [{ ...answer, tool_calls }, ...results];
  });
}

/** What is wrong with a prompt of the blocks: texts that it has not exactly once, or in another order. */
export function faultsOf(blocks: readonly Block[], prompt: string): string[] {
  const faults: string[] = [];
  let end = -1;
  const placeOf = (what: string, text: string): number => {
    const at = prompt.indexOf(text);
    if (at === -1) faults.push(`${what} is lost`);
    else if (prompt.includes(text, at + 1)) faults.push(`${what} is there twice`);
    return at;
  };
  blocks.forEach((block, i) => {
    const { kind } = block;
    const places: [what: string, place: number][] = [];
    if (block.text !== '') places.push([`${i}: ${kind}`, placeOf(`${i}: ${kind}`, block.text)]);
    // Thoughts may be dropped.
    if ('thoughts' in block && block.thoughts !== undefined && prompt.split(block.thoughts).length > 2)
      faults.push(`${i}: thoughts are there twice`);
    const begin = Math.max(end, ...places.map(([, place]) => place));
    let before = begin;
    let resultBefore = begin;
    for (const [j, { argument, result }] of (block.kind === 'calls' ? block.calls : []).entries()) {
      const [called, answered] = [placeOf(`${i}: call ${j}`, argument), placeOf(`${i}: result ${j}`, result)];
      if (called < before || answered < called || answered < resultBefore) faults.push(`${i}: call ${j} is misplaced`);
      before = called;
      resultBefore = answered;
      end = Math.max(end, called, answered);
    }
    for (const [what, place] of places) {
      if (place < end && kind !== 'calls') faults.push(`${what} is misplaced`);
      end = Math.max(end, place);
    }
  });
  return faults;
}

/** The same conversation as the request of each API, without streaming. */
export const requestsOf: Readonly<Record<ChatPath, (blocks: readonly Block[]) => object>> = {
  '/v1/chat/completions': (blocks) => ({
    model: 'letters',
    max_tokens: 8,
    messages: messagesOf(blocks).map((message) => {
      const calls = message.tool_calls as readonly ReturnType<typeof textCall>[] | undefined;
      return calls === undefined
        ? message
        : { ...message, content: message.content || null, tool_calls: calls.map(textCall) };
    }),
    ...(hasCalls(blocks) ? { tools: [markedTool] } : {}),
  }),
  '/v1/responses': (blocks) => ({
    model: 'letters',
    max_output_tokens: 8,
    input: blocks.flatMap(itemsOf),
    ...(hasCalls(blocks) ? { tools: [{ type: 'function', ...markedTool.function }] } : {}),
  }),
  '/v1/messages': (blocks) => ({ model: 'letters', max_tokens: 8, ...anthropicMessages(blocks) }),
  '/api/chat': (blocks) => ({
    model: 'letters',
    stream: false,
    options: { num_predict: 8 },
    messages: messagesOf(blocks).map(({ reasoning_content: thinking, ...message }) => {
      const calls = message.tool_calls as readonly { readonly function: object }[] | undefined;
      const withoutIds = calls === undefined ? {} : { tool_calls: calls.map((call) => ({ function: call.function })) };
      return { ...message, ...withoutIds, ...(thinking === undefined ? {} : { thinking }) };
    }),
    ...(hasCalls(blocks) ? { tools: [markedTool] } : {}),
  }),
};

const textCall = (call: { readonly function: { readonly name: string; readonly arguments: unknown } }) => ({
  ...call,
  function: { ...call.function, arguments: JSON.stringify(call.function.arguments) },
});

function itemsOf(block: Block): object[] {
  if (block.kind !== 'answer' && block.kind !== 'calls') return [{ role: block.kind, content: block.text }];
  const { text, thoughts } = block;
  const reasoning = { type: 'reasoning', summary: [], content: [{ type: 'reasoning_text', text: thoughts }] };
  const message = { type: 'message', role: 'assistant', content: [{ type: 'output_text', text }] };
  const calls = block.kind === 'calls' ? block.calls : [];
  return [
    ...(thoughts === undefined ? [] : [reasoning]),
    ...(text === '' ? [] : [message]),
    ...calls.map(({ id, argument }) => ({
      type: 'function_call',
      call_id: id,
      name: markedTool.function.name,
      arguments: JSON.stringify({ word: argument }),
    })),
    ...(block.kind === 'calls' ? block.order : []).map((i) => ({
      type: 'function_call_output',
      call_id: calls[i]!.id,
      output: calls[i]!.result,
    })),
  ];
}

/** Results of calls and the text after them are one message of the user. */
function anthropicMessages(blocks: readonly Block[]): object {
  const messages: { role: string; content: object[] }[] = [];
  const add = (role: string, ...content: object[]): void => {
    const last = messages.at(-1);
    if (last?.role === role && role === 'user' && last.content.some((one) => 'tool_use_id' in one))
      last.content.push(...content);
    else messages.push({ role, content });
  };
  for (const block of blocks) {
    if (block.kind !== 'answer' && block.kind !== 'calls') {
      add(block.kind === 'user' ? 'user' : 'system', { type: 'text', text: block.text });
      continue;
    }
    const { text, thoughts } = block;
    const calls = block.kind === 'calls' ? block.calls : [];
    add(
      'assistant',
      ...(thoughts === undefined ? [] : [{ type: 'thinking', thinking: thoughts, signature: '' }]),
      ...(text === '' ? [] : [{ type: 'text', text }]),
      ...calls.map(({ id, argument }) => ({
        type: 'tool_use',
        id,
        name: markedTool.function.name,
        input: { word: argument },
      })),
    );
    const results = (block.kind === 'calls' ? block.order : []).map((i) => ({
      type: 'tool_result',
      tool_use_id: calls[i]!.id,
      content: calls[i]!.result,
    }));
    if (results.length > 0) add('user', ...results);
  }
  const { name, description, parameters } = markedTool.function;
  const tools = hasCalls(blocks) ? { tools: [{ name, description, input_schema: parameters }] } : {};
  return { messages, ...tools };
}
