import { afterAll, describe, expect, it } from 'vitest';
import { expectedPrompts, hasChatTemplates, readChatTemplate } from './support/chat-templates.ts';
import { inLongForm } from './support/long-form.ts';
import { blocksOf, faultsOf, requestsOf } from './support/marked-conversation.ts';
import { needs } from './support/needs.ts';
import { type ChatPath, TemplateServer } from './support/prompt-of-request.ts';

/** Conversations that end with a request for an answer. Ollama's results have no ids, so they come in the order of their calls. */
const shapes = [
  'S S U',
  'U S',
  'U D U',
  'U U',
  'S U A S U',
  'S U 1 U',
  'U 1 S',
  'S U TH2R',
  'U TH2R A U T1',
  'U 1 2 H1',
];

const servers: TemplateServer[] = [];
afterAll(async () => {
  for (const server of servers) await server.close();
});

describe(
  'requests of every API become prompts with all of their texts',
  needs(hasChatTemplates, 'no templates of llama-cpp-python (.ci/install-chat-templates)'),
  () => {
    // `template-conversations.test.ts` has all templates, with the messages that the APIs read.
    const strict = /Qwen3.5|gpt-oss|Mistral-Small-3.2|gemma-2|Llama-3.1|command-r7b/;
    const templates = Object.entries(expectedPrompts.templates).filter(([name]) => inLongForm(true, strict.test(name)));

    it.each(templates)('%s', async (name, expected) => {
      const server = new TemplateServer(readChatTemplate(name, expected));
      servers.push(server);
      const found: string[] = [];
      for (const [path, requestOf] of Object.entries(requestsOf)) {
        for (const shape of shapes) {
          const letters = shape.split(' ').map((one) => (path === '/api/chat' ? one.replace('R', '') : one));
          const blocks = blocksOf(letters);
          const { status, prompt, answer } = await server.prompt(path as ChatPath, requestOf(blocks));
          const faults = status === 200 ? faultsOf(blocks, prompt) : [answer];
          found.push(...faults.map((fault) => `${path} ${shape}: ${fault}`));
        }
      }
      expect(found).toEqual([]);
    });
  },
);
