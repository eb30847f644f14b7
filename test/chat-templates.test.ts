import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { KvasirError } from '../src/base/errors.ts';
import { readExactJson } from '../src/base/exact-json.ts';
import { type ChatTemplate, compileChatTemplate, type TemplateMessage } from '../src/tokenizer/chat-template.ts';
import {
  type ExpectedConversation,
  expectedPrompts,
  hasChatTemplates,
  readChatTemplate,
} from './support/chat-templates.ts';
import { inLongForm } from './support/long-form.ts';
import { needs } from './support/needs.ts';

const context = { bosToken: '<s>', eosToken: '</s>', now: () => new Date(2026, 0, 5, 9, 7, 3) };

/** Of the prompt; `error` if the template refuses the conversation. */
function digestOf(template: ChatTemplate, { messages, tools, variables, startsAnswer }: ExpectedConversation): string {
  const given = readExactJson(variables) as Readonly<Record<string, unknown>>;
  const names = tools === null ? given : { ...given, tools: readExactJson(tools) };
  const options = { addGenerationPrompt: startsAnswer, variables: names };
  try {
    const text = template.render(readExactJson(messages) as unknown as readonly TemplateMessage[], options);
    return createHash('sha256').update(text).digest('hex').slice(0, 16);
  } catch (error) {
    if (error instanceof KvasirError) return 'error';
    throw error;
  }
}

/**
 * `tools/chat-templates/make_expected.py show` prints the expected prompt of a template and a conversation. By default, each template
 * gets a fourth of the conversations.
 */
describe(
  'the chat templates of models',
  needs(hasChatTemplates, 'no templates of llama-cpp-python (.ci/install-chat-templates)'),
  () => {
    const templates = Object.entries(expectedPrompts.templates);
    const conversations = Object.entries(expectedPrompts.conversations);

    it(`are ${templates.length} with ${conversations.length} conversations`, () => {
      expect(templates.length).toBeGreaterThanOrEqual(40);
      expect(conversations.length).toBeGreaterThanOrEqual(30);
    });

    it.each(templates.map(([name], i) => [name, i] as const))('render as transformers renders: %s', (name, i) => {
      const expected = expectedPrompts.templates[name]!;
      const template = compileChatTemplate(readChatTemplate(name, expected), context);
      const chosen = conversations.filter((_, j) => (i + j) % inLongForm(1, 4) === 0);
      const digests = Object.fromEntries(chosen.map(([title, given]) => [title, digestOf(template, given)]));
      expect(digests).toEqual(Object.fromEntries(chosen.map(([title]) => [title, expected.prompts[title]])));
    });
  },
);
