import fc from 'fast-check';
import type { TemplateMessage } from '../../src/tokenizer/chat-template.ts';

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
