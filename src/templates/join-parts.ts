import { byName } from '../base/by-name.ts';
import type { TemplateMessage } from '../tokenizer/chat-template.ts';
import type { Report, Takes } from './fit-turns.ts';
import { textOf } from './message-texts.ts';

/** By the role: a conversation with one text in a message, and the same with two parts. */
const shapes: Readonly<Record<string, readonly [text: string, parts: string]>> = byName({
  system: ['SUA', 'IUA'],
  user: ['UAU', 'VAU'],
  assistant: ['UAU', 'ULU'],
  tool: ['UCTAU', 'UCZAU'],
});

/** Some templates show the first part of a content only. Its parts become one text. */
export function joinParts(
  messages: readonly TemplateMessage[],
  takes: Takes,
  report: Report,
): readonly TemplateMessage[] {
  return messages.map((message) => {
    const { role, content } = message;
    if (!Array.isArray(content) || content.length < 2 || !Object.hasOwn(shapes, role)) return message;
    const [text, parts] = shapes[role]!;
    if (takes(parts) || !takes(text)) return message;
    report('parts');
    return { ...message, content: textOf(message) };
  });
}
