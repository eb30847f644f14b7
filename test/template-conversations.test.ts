import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { KvasirError } from '../src/base/errors.ts';
import { type FittedTemplate, fittedTemplate } from '../src/templates/fitted-template.ts';
import { compileChatTemplate, type TemplateMessage } from '../src/tokenizer/chat-template.ts';
import { expectedPrompts, hasChatTemplates, readChatTemplate } from './support/chat-templates.ts';
import { fuzzRuns } from './support/long-form.ts';
import { anyLetters, blocksOf, faultsOf, hasCalls, markedTool, messagesOf } from './support/marked-conversation.ts';
import { needs } from './support/needs.ts';

const context = { bosToken: '<s>', eosToken: '</s>', now: () => new Date(2026, 0, 5, 9, 7, 3) };

/** Shapes that clients send: Claude Code, Codex, opencode, Qwen Code, LangChain, pydantic-ai and others. */
const shapes = [
  ...['U', 'SU', 'SSU', 'USU', 'US', 'DDU', 'DU', 'S', 'UU', 'UAU', 'SUASU', 'UAUU', 'AU', 'UAAU', 'UHU', 'UAS'],
  ...['U 1', 'U 1 A U', 'U 1 U', 'U 1 S', 'U 1 D A', 'SSU 1 1 A U 1', 'U 2', 'U 2R', 'U 3R A U', 'U 1 A U 2R A U'],
  ...[
    'U T1',
    'U T1 A U',
    'U TH1',
    'U TH1 A U',
    'U TH2R',
    'U TH2R A U TH2R',
    'U H1 TH1 H2R A U',
    'SUS TH2R U',
    'SUS T1 T1 S A',
  ],
].map((shape) => shape.split(' ').flatMap((word) => (/\d/.test(word) ? [word] : Array.from(word))));

function faults(
  template: FittedTemplate,
  letters: readonly string[],
  hasShortIds: boolean,
  hasTools: boolean,
): string[] {
  const blocks = blocksOf(letters, hasShortIds);
  const variables = hasTools || hasCalls(blocks) ? { tools: [markedTool] } : {};
  try {
    return faultsOf(blocks, template.render(messagesOf(blocks), { variables }).text);
  } catch (error) {
    if (error instanceof KvasirError) return [error.message];
    throw error;
  }
}

/** The ids of one turn again in the next one, arguments that are no JSON, results without ids or calls. */
function unusualCalls(template: FittedTemplate): string[] {
  const tools = [markedTool];
  const { name } = markedTool.function;
  const user = (content: string) => ({ role: 'user', content });
  const calling = (id: string, given: unknown) => ({
    role: 'assistant',
    content: '',
    tool_calls: [{ id, type: 'function', function: { name, arguments: given } }],
  });
  const result = (id: string | undefined, content: string) => ({
    role: 'tool',
    content,
    ...(id === undefined ? {} : { tool_call_id: id }),
  });
  const conversations = [
    [
      user('qz1zq'),
      calling('c', { word: 'qz2zq' }),
      result('c', 'qz3zq'),
      calling('c', { word: 'qz4zq' }),
      result('c', 'qz5zq'),
    ],
    [user('qz1zq'), calling('c', '{"word": "qz2zq'), result('c', 'qz3zq'), user('qz4zq')],
    [user('qz1zq'), calling('c', ['qz2zq']), result('c', 'qz3zq'), user('qz4zq')],
    [user('qz1zq'), calling('c', null), result('c', 'qz3zq'), { role: 'user', content: [] }],
    [user('qz1zq'), { role: 'assistant', content: null, tool_calls: [] }, user('qz4zq')],
    [user('qz1zq'), calling('', { word: 'qz2zq' }), result(undefined, 'qz3zq'), user('qz4zq')],
    [user('qz1zq'), calling('c', { word: 'qz2zq' }), user('qz3zq'), { role: 'assistant', content: '' }, user('qz4zq')],
    [user('qz1zq'), result('c', 'qz2zq'), user('qz3zq')],
    [result('c', 'qz1zq'), user('qz2zq')],
  ];
  return conversations.flatMap((messages, i) => {
    try {
      const { text } = template.render(messages, { variables: { tools } });
      const wanted = JSON.stringify(messages).match(/qz\dzq/g);
      return String(text.match(/qz\dzq/g)) === String(wanted) ? [] : [`unusual call ${i}: ${text.match(/qz\dzq/g)}`];
    } catch (error) {
      return [`unusual call ${i}: ${error}`];
    }
  });
}

/** Conversations as the letters that each request adds: in the form that all templates know, and in forms of clients. */
const growing = [
  {
    simple: ['SU', 'AU', 'AU'],
    others: [
      ['SSDU', 'AUU', 'ASUS', 'AUSU', 'A'],
      ['US', 'AUS', 'ADU'],
    ],
  },
  {
    simple: ['SU1', '1', 'AU', '1', 'AU'],
    others: [
      ['SSUS2R', '1', 'AU', '2', 'ASU'],
      ['US1', '3RU', 'AU', 'T1S', 'AU'],
      ['DDU1', 'T1U', '1'],
    ],
  },
].map(({ simple, others }) => ({ simple: lettersOf(simple), others: others.map(lettersOf) }));

function lettersOf(requests: readonly string[]): readonly (readonly string[])[] {
  return requests.map((letters) => letters.match(/T?\dR?|[A-Z]/g)!);
}

/** Whether each prompt of a growing conversation begins with the one before it, up to its last text. */
function isStable(
  render: (messages: readonly TemplateMessage[]) => string,
  requests: readonly (readonly string[])[],
): boolean {
  const blocks = blocksOf(requests.flat());
  const prompts: string[] = [];
  const counts = requests.map((_, i) => requests.slice(0, i + 1).flat().length);
  try {
    for (const count of counts) prompts.push(render(messagesOf(blocks.slice(0, count))));
  } catch (error) {
    if (error instanceof KvasirError) return false;
    throw error;
  }
  return prompts.every((prompt, i) => {
    const last = Math.max(...Array.from(prompt.matchAll(/qz\w+?zq/g), ({ index }) => index));
    return prompts[i + 1]?.startsWith(prompt.slice(0, last)) ?? true;
  });
}

describe(
  'no chat template refuses a conversation or loses a text',
  needs(hasChatTemplates, 'no templates of llama-cpp-python (.ci/install-chat-templates)'),
  () => {
    it.each(Object.entries(expectedPrompts.templates))('%s', (name, expected) => {
      const template = fittedTemplate(readChatTemplate(name, expected), context);
      const found = shapes.flatMap((letters, i) =>
        faults(template, letters, i % 2 === 1, i % 3 === 0).map((fault) => `${letters.join(' ')}: ${fault}`),
      );
      expect([...found, ...unusualCalls(template)]).toEqual([]);
      fc.assert(
        fc.property(anyLetters, fc.boolean(), fc.boolean(), (letters, hasShortIds, hasTools) => {
          expect(faults(template, letters, hasShortIds, hasTools)).toEqual([]);
        }),
        { numRuns: fuzzRuns(40) },
      );
    });

    it('the prompt of a request remains the beginning of the next one, where the template itself allows it', () => {
      const moved: string[] = [];
      let allowed = 0;
      for (const [name, expected] of Object.entries(expectedPrompts.templates)) {
        const source = readChatTemplate(name, expected);
        const [raw, template] = [compileChatTemplate(source, context), fittedTemplate(source, context)];
        for (const { simple, others } of growing) {
          const variables = simple.flat().includes('1') ? { tools: [markedTool] } : {};
          if (!isStable((messages) => raw.render(messages, { variables }), simple)) continue;
          allowed++;
          for (const requests of [simple, ...others]) {
            const isMoved = !isStable((messages) => template.render(messages, { variables }).text, requests);
            if (isMoved) moved.push(`${name}: ${requests.map((letters) => letters.join('')).join(' ')}`);
          }
        }
      }
      // It shows the text beside a call as a thought, and drops thoughts after the answer.
      expect(moved).toEqual(['openai-gpt-oss-120b: US1 3RU AU T1S AU']);
      expect(allowed).toBeGreaterThan(100);
    });

    it('what a template takes is rendered as transformers renders it', () => {
      const changed: string[] = [];
      let same = 0;
      for (const [name, expected] of Object.entries(expectedPrompts.templates)) {
        const source = readChatTemplate(name, expected);
        const [raw, template] = [compileChatTemplate(source, context), fittedTemplate(source, context)];
        for (const letters of [...shapes, ['S', 'U', 'A', 'U', '1', 'A', 'U']]) {
          const blocks = blocksOf(letters, true);
          const messages = messagesOf(blocks);
          const options = { variables: hasCalls(blocks) ? { tools: [markedTool] } : {} };
          const text = textOrNothing(() => raw.render(messages, options));
          const isShown = text !== undefined && faultsOf(blocks, text).length === 0;
          if (!isShown || (hasCalls(blocks) && !text.includes(markedTool.function.description))) continue;
          // Llama 3.1 to 3.3 put tools before the second message, and show it as the user's.
          const asUser = blocksOf(
            letters.map((letter, i) => (letter === 'S' && i > 0 ? 'U' : letter)),
            true,
          );
          if (letters.includes('S', 1) && textOrNothing(() => raw.render(messagesOf(asUser), options)) === text)
            continue;
          if (text === template.render(messages, options).text) same++;
          else changed.push(`${name}: ${letters.join(' ')}`);
        }
      }
      // They take system messages at some places only: the place of a text would depend on what follows.
      const some = ['Mistral-Small-3.2-24B-Instruct-2506: ', 'google-gemma-2-2b-it: '];
      const late = ['U S U', 'U S', 'U 1 S'];
      expect(changed.filter((one) => !some.some((name) => late.some((shape) => one === name + shape)))).toEqual([]);
      expect(same).toBeGreaterThan(1000);
    });
  },
);

function textOrNothing(render: () => string): string | undefined {
  try {
    return render();
  } catch (error) {
    if (error instanceof KvasirError) return undefined;
    throw error;
  }
}
