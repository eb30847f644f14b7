import type {
  LanguageModelV3Message,
  LanguageModelV3Prompt,
  LanguageModelV3ToolResultOutput,
  LanguageModelV3ToolResultPart,
} from '@ai-sdk/provider';
import { invalidParameter } from '../core/errors.ts';
import type { ChatMessage } from '../engine/contract.ts';

/** The AI SDK's prompt as messages for `engine.chat`. */
export function chatMessages(prompt: LanguageModelV3Prompt): ChatMessage[] {
  return prompt.flatMap((message): ChatMessage[] => {
    if (message.role === 'system') return [{ role: 'system', content: message.content }];
    if (message.role === 'user') return [{ role: 'user', content: texts(message.content).join('\n') }];
    if (message.role === 'assistant') return [assistantMessage(message)];
    return message.content.flatMap((part) => (part.type === 'tool-result' ? [resultMessage(part)] : []));
  });
}

function assistantMessage({ content }: LanguageModelV3Message & { role: 'assistant' }): ChatMessage {
  const reasoning = content.flatMap((part) => (part.type === 'reasoning' ? [part.text] : [])).join('');
  const toolCalls = content.flatMap((part) =>
    part.type === 'tool-call'
      ? [{ id: part.toolCallId, name: part.toolName, arguments: JSON.stringify(part.input ?? {}) }]
      : [],
  );
  const spoken = content.filter(({ type }) => type === 'text' || type === 'file');
  return {
    role: 'assistant',
    content: texts(spoken).join(''),
    ...(reasoning === '' ? {} : { reasoning }),
    ...(toolCalls.length === 0 ? {} : { toolCalls }),
  };
}

function resultMessage({ toolCallId, toolName, output }: LanguageModelV3ToolResultPart): ChatMessage {
  return { role: 'tool', toolCallId, name: toolName, content: resultText(output) };
}

function resultText(output: LanguageModelV3ToolResultOutput): string {
  switch (output.type) {
    case 'text':
    case 'error-text':
      return output.value;
    case 'json':
    case 'error-json':
      return JSON.stringify(output.value);
    case 'execution-denied':
      return output.reason ?? 'The execution of the tool was denied.';
    case 'content':
      return texts(output.value).join('\n');
  }
}

interface Part {
  readonly type: string;
  readonly text?: string;
  readonly mediaType?: string;
}

function texts(parts: readonly Part[]): string[] {
  return parts.map(({ type, text, mediaType }) => {
    if (type === 'text' && text !== undefined) return text;
    const actual = mediaType === undefined ? `a part of type ${type}` : `a part of type ${type} (${mediaType})`;
    throw invalidParameter({ parameter: 'prompt', expected: 'text parts, because the model reads text only', actual });
  });
}
