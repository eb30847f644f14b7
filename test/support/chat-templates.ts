import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { defaultCacheFolder } from '../../src/base/cache-folder.ts';

/** Made by transformers with `tools/chat-templates/make_expected.py`. */
export interface ExpectedPrompts {
  readonly conversations: Readonly<Record<string, ExpectedConversation>>;
  readonly templates: Readonly<Record<string, ExpectedTemplate>>;
}

/** The fields are JSON texts, because numbers keep their digits there. */
export interface ExpectedConversation {
  readonly messages: string;
  readonly tools: string | null;
  readonly variables: string;
  /** Whether the prompt ends with the start of an answer. */
  readonly startsAnswer: boolean;
}

export interface ExpectedTemplate {
  /** Of the template's file. */
  readonly sha256: string;
  /** The first 16 digits of the SHA-256 of the prompt, by the name of the conversation, or `error`. */
  readonly prompts: Readonly<Record<string, string>>;
}

export const expectedPrompts = JSON.parse(readFileSync('tools/chat-templates/prompts.json', 'utf8')) as ExpectedPrompts;

/** Templates of models, which are not in this repository: `.ci/install-chat-templates` puts them here. */
const folder = join(defaultCacheFolder() ?? '', 'chat-templates-0.3.36');

export const hasChatTemplates = existsSync(folder);

export const chatTemplateFile = (name: string): string => join(folder, `${name}.jinja`);

/** @throws Error if the file has changed since the expected prompts were made. */
export function readChatTemplate(name: string, { sha256 }: ExpectedTemplate): string {
  const bytes = readFileSync(chatTemplateFile(name));
  const digest = createHash('sha256').update(bytes).digest('hex');
  if (digest !== sha256) throw new Error(`${name}: another template than the one that transformers rendered`);
  return bytes.toString();
}
