import type { AnswerDelta, AnswerMessage, ToolCallDelta } from '../engine/chat/chat-answer.ts';
import type { ChatChoice, ChatDelta, ChatToolCallDelta } from './openai-types.ts';

/** The delta of a streamed answer in OpenAI's format. Without text and calls it has no fields. */
export const chatDelta = ({ content, reasoning, toolCalls }: AnswerDelta): ChatDelta => ({
  ...(content === '' ? {} : { content }),
  ...(reasoning === '' ? {} : { reasoning_content: reasoning }),
  ...(toolCalls.length === 0 ? {} : { tool_calls: toolCalls.map(callDelta) }),
});

/** The whole answer in OpenAI's format. */
export const chatMessage = ({ content, reasoning, toolCalls }: AnswerMessage): ChatChoice['message'] => ({
  role: 'assistant',
  content: content === '' && toolCalls.length > 0 ? null : content,
  refusal: null,
  ...(reasoning === '' ? {} : { reasoning_content: reasoning }),
  ...(toolCalls.length === 0
    ? {}
    : {
        tool_calls: toolCalls.map(({ id, name, arguments: text }) => ({
          id,
          type: 'function',
          function: { name, arguments: text },
        })),
      }),
});

const callDelta = ({ index, id, name, arguments: text }: ToolCallDelta): ChatToolCallDelta => ({
  index,
  ...(id === undefined ? {} : { id, type: 'function' }),
  function: { ...(name === undefined ? {} : { name }), arguments: text },
});
