import { assertDefined } from '../../../base/assert.ts';
import { byName } from '../../../base/by-name.ts';
import { ChatAnswer, type ToolCallDelta } from '../../../engine/chat/chat-answer.ts';
import type { AnsweredDelta } from '../../../engine/early-end.ts';
import { argumentsJson } from '../../generation/arguments-json.ts';
import type { Prompt } from '../../generation/generation.ts';
import type { RenderContext, Renderer, RequestUsage } from '../../generation/renderer.ts';
import { RawJson } from '../../http/json-pieces.ts';
import { errorAnswer } from '../../http/server-errors.ts';
import { messageError } from './message-errors.ts';
import type {
  BlockDelta,
  Message,
  MessageBlock,
  MessageEvent,
  MessageStop,
  MessageUsage,
  StopReason,
} from './message-types.ts';

/** Writes an answer as a message: its blocks one after the other, each begun, extended and stopped by events. */
export function messageRenderer(context: RenderContext): Renderer<MessageEvent, Message> {
  const { engine, id } = context;
  const answer = new ChatAnswer(assertDefined(context.answers, 'a message is the answer of a chat'));
  const head = { id, type: 'message', role: 'assistant', model: engine.model.name } as const;
  const [{ tokens, maxTokens }] = context.prompts as readonly [Prompt];
  const isCutByContext = tokens.length + maxTokens >= engine.model.maxModelLen;
  const atLimit = isCutByContext ? 'model_context_window_exceeded' : 'max_tokens';
  let hasBegun = false;
  /** Of the block that is not stopped. */
  let open: { readonly kind: MessageBlock['type']; readonly call?: number } | undefined;
  let blocks = 0;

  function* stop(): Generator<MessageEvent, void, void> {
    if (open === undefined) return;
    if (open.kind === 'thinking')
      yield { type: 'content_block_delta', index: blocks - 1, delta: { type: 'signature_delta', signature } };
    open = undefined;
    yield { type: 'content_block_stop', index: blocks - 1 };
  }
  function* extend(
    empty: MessageBlock,
    delta: BlockDelta | undefined,
    call?: number,
  ): Generator<MessageEvent, void, void> {
    if (open?.kind !== empty.type || open.call !== call) {
      yield* stop();
      open = { kind: empty.type, ...(call === undefined ? {} : { call }) };
      yield { type: 'content_block_start', index: blocks++, content_block: empty };
    }
    if (delta !== undefined) yield { type: 'content_block_delta', index: blocks - 1, delta };
  }
  function* extendCall({
    index,
    id: callId,
    name,
    arguments: json,
  }: ToolCallDelta): Generator<MessageEvent, void, void> {
    const empty = { ...directCall, id: callId ?? '', name: name ?? '', input: new RawJson<object>('{}') };
    yield* extend(empty, json === '' ? undefined : { type: 'input_json_delta', partial_json: json }, index);
  }
  function* events(delta: AnsweredDelta): Generator<MessageEvent, void, void> {
    const usage = messageUsage(context.usage);
    if (!hasBegun) {
      hasBegun = true;
      const message: Message = { ...head, content: [], ...notStopped, usage };
      yield { type: 'message_start', message };
    }
    const { content, reasoning, toolCalls } = answer.add(delta);
    if (reasoning !== '') yield* extend(emptyThinking, { type: 'thinking_delta', thinking: reasoning });
    if (content !== '') yield* extend(emptyText, { type: 'text_delta', text: content });
    for (const call of toolCalls) yield* extendCall(call);
    if (delta.finish === undefined) return;
    yield* stop();
    yield { type: 'message_delta', delta: stopOf(answer, delta.finish, atLimit), usage };
    yield { type: 'message_stop' };
  }

  return {
    form: { typeOf: ({ type }) => type, ofError: (error) => [messageError(errorAnswer(error))] },
    chunks: (delta) => [...events(delta)],
    body: ([choice]) => {
      const output = assertDefined(choice, 'a message has one choice');
      answer.add(output);
      const { content, reasoning, toolCalls } = answer.message();
      const blocks: MessageBlock[] = [
        ...(reasoning === '' ? [] : [{ ...emptyThinking, thinking: reasoning, signature }]),
        ...(content === '' ? [] : [{ ...emptyText, text: content }]),
        ...toolCalls.map(({ id, name, arguments: json }) => ({
          ...directCall,
          id,
          name,
          input: argumentsJson(json),
        })),
      ];
      return {
        ...head,
        content: blocks,
        ...stopOf(answer, output.finish, atLimit),
        usage: messageUsage(context.usage),
      };
    },
  };
}

/** "kvasir" in Base64. Nothing is signed: thoughts that come back are read without it. */
const signature = 'a3Zhc2ly';
const emptyThinking = { type: 'thinking', thinking: '', signature: '' } as const;
const emptyText = { type: 'text', text: '', citations: null } as const;
const directCall = { type: 'tool_use', caller: { type: 'direct' } } as const;
const notStopped = { stop_reason: null, stop_sequence: null, stop_details: null, container: null } as const;

/** `atLimit`: the reason if the answer has as many tokens as it may. */
function stopOf(answer: ChatAnswer, finish: AnsweredDelta['finish'], atLimit: StopReason): MessageStop {
  const { stopReason } = finish ?? {};
  const stop_sequence = typeof stopReason === 'string' ? stopReason : null;
  const reasons: Readonly<Record<string, StopReason>> = byName({ length: atLimit, tool_calls: 'tool_use' });
  const stop_reason =
    reasons[answer.finishReason(finish) ?? ''] ?? (stop_sequence === null ? 'end_turn' : 'stop_sequence');
  return { ...notStopped, stop_reason, stop_sequence };
}

/** What only Anthropic's servers have. */
const elsewhere = {
  cache_creation: null,
  inference_geo: null,
  output_tokens_details: null,
  server_tool_use: null,
  service_tier: 'standard',
} as const;

const messageUsage = ({ promptTokens, outputTokens, cachedTokens }: RequestUsage): MessageUsage => ({
  input_tokens: promptTokens - cachedTokens,
  cache_creation_input_tokens: 0,
  cache_read_input_tokens: cachedTokens,
  output_tokens: outputTokens,
  ...elsewhere,
});
