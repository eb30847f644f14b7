import type { TemplateMessage } from '../tokenizer/chat-template.ts';
import { placeText } from './call-forms.ts';

/**
 * The kinds of messages in a shape, which is a word such as `SUCTU`:
 *
 *   S system   U user   A answer      C answer with a call           B text and a call   P answer with two calls
 *   D developer         E empty user  F empty answer                 H thought, text and a call
 *   T the result of the next call that has none yet                  Q the same with the text after the thoughts, as in harmony
 *   K an answer with a marked thought    J a call with a marked thought
 *   G an answer of a space   W a call with the id of the first one   X a call whose arguments are no JSON   Y a list
 *   I, V, L and Z: as S, U, A and T, with two texts in a list of parts
 */
export type MessageKind = LetterOf<'SDUACBHQPTEFGWXYKJIVLZ'>;
type LetterOf<T extends string> = T extends `${infer First}${infer Rest}` ? First | LetterOf<Rest> : never;

/** The name of the function that shapes call. */
export const probedFunction = 'get_qzvkw';

/** A conversation of this shape. Each of its texts is another marker, except most thoughts, which templates may drop. */
export function conversationOf(shape: string): TemplateMessage[] {
  let marks = 0;
  const ids: string[] = [];
  let results = 0;
  const mark = (): string => `qzvk${String.fromCharCode(97 + marks++)}q`;
  const call = (id: string, given: unknown = { place: mark() }): object => {
    ids.push(id);
    return { id, type: 'function', function: { name: probedFunction, arguments: given } };
  };
  const next = (): object => call(idOf(ids.length));
  const inParts = (message: TemplateMessage): TemplateMessage => ({
    ...message,
    content: [message.content as string, mark()].map((text) => ({ type: 'text', text })),
  });
  const made: Readonly<Record<MessageKind, () => TemplateMessage>> = {
    S: () => ({ role: 'system', content: mark() }),
    D: () => ({ role: 'developer', content: mark() }),
    U: () => ({ role: 'user', content: mark() }),
    E: () => ({ role: 'user', content: '' }),
    A: () => ({ role: 'assistant', content: mark() }),
    F: () => ({ role: 'assistant', content: '' }),
    G: () => ({ role: 'assistant', content: ' ' }),
    C: () => ({ role: 'assistant', content: '', tool_calls: [next()] }),
    K: () => ({ role: 'assistant', reasoning_content: mark(), content: mark() }),
    J: () => ({ role: 'assistant', reasoning_content: mark(), content: '', tool_calls: [next()] }),
    W: () => ({ role: 'assistant', content: '', tool_calls: [call(idOf(0))] }),
    X: () => ({ role: 'assistant', content: '', tool_calls: [call(idOf(ids.length), `{"place": "${mark()}`)] }),
    Y: () => ({ role: 'assistant', content: '', tool_calls: [call(idOf(ids.length), [mark()])] }),
    B: () => ({ role: 'assistant', content: mark(), tool_calls: [next()] }),
    H: () => ({ role: 'assistant', reasoning_content: 'Hm.', content: mark(), tool_calls: [next()] }),
    Q: () => placeText(made.H(), 'Hm.', 'preamble')[0]!,
    P: () => ({ role: 'assistant', content: '', tool_calls: [next(), next()] }),
    T: () => ({ role: 'tool', tool_call_id: ids[results++] ?? idOf(results), content: mark() }),
    I: () => inParts(made.S()),
    V: () => inParts(made.U()),
    L: () => inParts(made.A()),
    Z: () => inParts(made.T()),
  };
  return Array.from(shape, (kind) => made[kind as MessageKind]());
}

/** In the form of most servers. */
const idOf = (index: number): string => `call_${String(index).padStart(24, '0')}`;

/** The markers of a text in their order. */
export const marksOf = (text: string): readonly string[] => text.match(/qzvk[a-z]q/g) ?? [];
