import { describeValue } from '../../base/describe-value.ts';
import { invalidParameter } from '../../core/errors.ts';
import type { SamplingOptions } from '../../core/sampling.ts';
import { checkSampling } from '../../core/sampling-parse.ts';
import { joinedParts, type ToolMessage } from '../../tools/template-messages.ts';
import type { ChatMessage, ChatSettings, Tool } from './chat-contract.ts';
import type { ReadChat } from './prepare-chat.ts';

/**
 * Checks the arguments of the library's `chat`. `vocabSize`: of the model.
 * @throws KvasirError `invalidParameter`
 */
export function readChat(
  messages: readonly ChatMessage[],
  params: SamplingOptions,
  settings: ChatSettings,
  vocabSize: number,
): ReadChat {
  checkMessages(messages);
  const { tools = [], toolChoice = 'auto', parallelToolCalls = true, variables = {} } = settings;
  checkTools(tools, toolChoice);
  const { continueFinalMessage = false, addGenerationPrompt = !continueFinalMessage } = settings;
  if (continueFinalMessage) checkFinalMessage(messages, { addGenerationPrompt, toolChoice });
  const checked = checkSampling(params, vocabSize);
  const { structuredOutputs: outputs } = checked;
  const name = typeof toolChoice === 'object' ? toolChoice.name : undefined;
  const named = name === undefined ? undefined : tools.filter((tool) => tool.function.name === name);
  return {
    messages: messages.map(toolMessage),
    tools,
    forbidsCalls: toolChoice === 'none',
    addGenerationPrompt,
    continueFinalMessage,
    variables,
    params: checked,
    areParallel: parallelToolCalls && named === undefined,
    requiredTools: toolChoice === 'required' ? tools : named,
    structure: outputs && { outputs, parameter: 'structuredOutputs' },
  };
}

/** The names that templates read. */
function toolMessage({ toolCallId, reasoning, content, ...message }: ChatMessage): ToolMessage {
  return {
    ...message,
    ...(typeof content === 'string' ? { content } : { content: joinedParts(content), parts: content }),
    ...(toolCallId === undefined ? {} : { tool_call_id: toolCallId }),
    ...(reasoning === undefined || reasoning === '' ? {} : { reasoning_content: reasoning }),
  };
}

function checkMessages(messages: unknown): void {
  const expected = 'a list of messages with `role` and `content`';
  if (!Array.isArray(messages)) throw wrong('messages', expected, messages);
  if (messages.length === 0) throw wrong('messages', 'at least one message', messages);
  for (const [i, message] of messages.entries()) {
    const { role, content } = (message ?? {}) as Partial<Record<string, unknown>>;
    if (typeof role !== 'string') throw wrong(`messages[${i}].role`, 'a string', role);
    const isText = typeof content === 'string' || (Array.isArray(content) && content.every(isTextPart));
    if (!isText) throw wrong(`messages[${i}].content`, 'a string or a list of text parts', content);
  }
}

const isTextPart = (part: unknown): boolean => {
  const { type, text } = (part ?? {}) as Partial<Record<string, unknown>>;
  return type === 'text' && typeof text === 'string';
};

function checkFinalMessage(
  messages: readonly ChatMessage[],
  { addGenerationPrompt, toolChoice }: { readonly addGenerationPrompt: boolean; readonly toolChoice: unknown },
): void {
  if (addGenerationPrompt) throw wrong('addGenerationPrompt', 'false with `continueFinalMessage`', true);
  if (toolChoice !== 'auto' && toolChoice !== 'none') {
    throw wrong('toolChoice', '"auto" or "none" with `continueFinalMessage`', toolChoice);
  }
  if ((messages.at(-1)?.toolCalls ?? []).length > 0) {
    throw wrong(`messages[${messages.length - 1}]`, 'a text without calls to continue', 'calls');
  }
}

function checkTools(tools: readonly Tool[], toolChoice: unknown): void {
  if (!Array.isArray(tools)) throw wrong('tools', 'a list of tools', tools);
  const names = new Set<string>();
  for (const [i, tool] of tools.entries()) {
    const name: unknown = tool?.function?.name;
    if (typeof name !== 'string' || name === '') throw wrong(`tools[${i}].function.name`, 'a name', name);
    if (names.has(name)) throw wrong(`tools[${i}].function.name`, 'a name that no other tool has', name);
    names.add(name);
  }
  checkChoice(toolChoice, names);
}

function checkChoice(choice: unknown, names: ReadonlySet<string>): void {
  if (choice === 'auto' || choice === 'none') return;
  const name = typeof choice === 'object' && choice !== null && 'name' in choice ? choice.name : undefined;
  const isKnown = choice === 'required' ? names.size > 0 : typeof name === 'string' && names.has(name);
  if (isKnown) return;
  const expected = '"auto", "none", or with `tools` "required" or the name of a tool in an object';
  throw wrong('toolChoice', expected, name ?? choice);
}

const wrong = (parameter: string, expected: string, actual: unknown) =>
  invalidParameter({ parameter, expected, actual: describeValue(actual) });
