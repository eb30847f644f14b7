import { byEntries, byName } from '../../../base/by-name.ts';
import type { FieldReader } from '../../../base/field-reader.ts';
import type { ParsedChat, ParseLimits } from '../../generation/request.ts';
import { bodyReader, ignoreSmall } from '../../http/body-reader.ts';
import { asksForNothing } from '../openai/field-lists.ts';
import { foreignFields } from '../openai/foreign-fields.ts';
import { parseChat } from '../openai/parse.ts';
import { asMessages, type ConversationItem } from './conversation-items.ts';
import { readOwnFields } from './read-echo.ts';
import { readItems } from './read-items.ts';
import { readResponseTools } from './read-response-tools.ts';
import { withResponseNames } from './response-errors.ts';
import { type History, itemsOf } from './response-store.ts';
import type { RequestEcho } from './response-types.ts';
import type { ToolName } from './tool-names.ts';

/** What earlier responses provide. Each method throws an error for an id that is not stored. */
export interface EarlierResponses {
  history(id: string): History;
  item(id: string): ConversationItem;
}

/** A request for a response: a chat request with the same meaning, and what a chat request has no fields for. */
export interface ParsedResponse {
  readonly chat: ParsedChat;
  readonly echo: RequestEcho;
  readonly history: History | undefined;
  /** The new items, without those of the history. */
  readonly input: readonly ConversationItem[];
  readonly stream: boolean;
  /** Fields that were set and have no effect. */
  readonly ignored: readonly string[];
  /** By the names that the model sees. */
  readonly toolNames: ReadonlyMap<string, ToolName>;
  /** The whole conversation, from which `truncation` removes items. */
  readonly items: readonly ConversationItem[];
  /** The chat request for other items. */
  chatOf(items: readonly ConversationItem[]): ParsedChat;
}

/** Fields that have the names and the meaning of a chat request. */
const AS_IN_CHATS: readonly string[] = [
  ...['model', 'temperature', 'top_p', 'top_k', 'min_p', 'repetition_penalty', 'presence_penalty'],
  ...['frequency_penalty', 'logit_bias', 'seed', 'stop', 'stop_token_ids', 'min_tokens', 'ignore_eos'],
  ...['include_stop_str_in_output', 'skip_special_tokens', 'cache_salt', 'priority', 'kv_transfer_params'],
  ...['chat_template_kwargs', 'structured_outputs', 'verbosity', ...foreignFields],
];

/** Fields of OpenAI and vLLM that do not change the text here. */
const HARMLESS = [
  'service_tier',
  'prompt_cache_options',
  'prompt_cache_retention',
  'request_id',
  'client_metadata',
  'access_programs',
];

/** Fields of OpenAI and vLLM that would change the response and are not supported. */
const REFUSED = [
  ...['conversation', 'context_management', 'moderation', 'prompt', 'previous_input_messages', 'previous_response'],
  ...['enable_response_messages', 'mm_processor_kwargs', 'vllm_xargs', 'image'],
];

/** Fields of chats, and what a request for a response has instead. */
const OTHER_NAMES: Readonly<Record<string, string>> = byName({
  messages: 'input',
  max_tokens: 'max_output_tokens',
  max_completion_tokens: 'max_output_tokens',
  response_format: 'text.format',
  reasoning_effort: 'reasoning.effort',
});

export function parseResponse(body: unknown, limits: ParseLimits, earlier: EarlierResponses): ParsedResponse {
  const reader = bodyReader(body, limits);
  const own = readOwnFields(reader);
  const tools = readResponseTools(reader);
  const stream = readStream(reader);
  const passed = byEntries(AS_IN_CHATS.map((name) => [name, reader.exact(name)]));
  ignoreSmall(reader, HARMLESS);
  for (const name of REFUSED) reader.refuse(name, asksForNothing);
  for (const [name, own] of Object.entries(OTHER_NAMES)) reader.refuse(name, () => false, `: use \`${own}\``);
  const previous = own.echo.previous_response_id;
  const history = previous === null ? undefined : earlier.history(previous);
  const { items: input, ignored } = readItems(reader, { itemsMax: limits.maxModelLen, item: earlier.item });
  const unknown = reader.finish();
  // The fields of the chat have other names for the client.
  const ofChat = { ...limits, observer: undefined };
  const chatOf = (items: readonly ConversationItem[]): ParsedChat => {
    const messages = asMessages(items, own.echo.instructions ?? undefined);
    try {
      return parseChat({ ...passed, ...tools.chat, ...own.chat, messages }, ofChat);
    } catch (error) {
      throw withResponseNames(error);
    }
  };
  const items = [...itemsOf(history), ...input];
  const chat = chatOf(items);
  return {
    chat,
    echo: {
      ...own.echo,
      temperature: chat.params.temperature ?? limits.samplingDefaults?.temperature ?? 1,
      presence_penalty: chat.params.presencePenalty ?? 0,
      frequency_penalty: chat.params.frequencyPenalty ?? 0,
      top_p: passed.top_p === undefined ? (limits.samplingDefaults?.topP ?? 1) : Number(passed.top_p),
      tools: tools.tools,
      tool_choice: tools.choice,
      parallel_tool_calls: tools.areParallel,
    },
    history,
    input,
    stream,
    ignored: [...own.ignored, ...tools.ignored, ...ignored, ...chat.ignored, ...unknown],
    toolNames: tools.names,
    items,
    chatOf,
  };
}

function readStream(reader: FieldReader): boolean {
  const stream = reader.boolean('stream') ?? false;
  const options = reader.object('stream_options');
  if (options !== undefined && !stream) {
    throw reader.invalid('stream_options', 'absent unless `stream` is true', 'an object');
  }
  options?.ignore(['include_obfuscation']);
  options?.finish();
  return stream;
}
