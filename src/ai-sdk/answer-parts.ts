import type {
  LanguageModelV3Content,
  LanguageModelV3FinishReason,
  LanguageModelV3StreamPart,
  LanguageModelV3Usage,
} from '@ai-sdk/provider';
import type { RequestStats } from '../core/request.ts';
import type { AnswerMessage, ChatFinishReason, ToolCallDelta } from '../engine/chat/chat-contract.ts';
import type { ChatDelta } from '../engine/contract.ts';
import { reusedTokens } from '../engine/stats.ts';

type BlockKind = 'text' | 'reasoning';

/** The parts of a streamed answer: blocks of text and thoughts, and calls. At most one is open. */
export class AnswerParts {
  #open: { readonly kind: BlockKind; readonly id: string } | OpenCall | undefined;
  #blocks = 0;

  add({ content, reasoning, toolCalls, finish }: ChatDelta): LanguageModelV3StreamPart[] {
    return [
      ...this.#addText('reasoning', reasoning),
      ...this.#addText('text', content),
      ...toolCalls.flatMap((piece) => this.#addCall(piece)),
      ...(finish === undefined ? [] : this.#close()),
    ];
  }

  #addText(kind: BlockKind, delta: string): LanguageModelV3StreamPart[] {
    if (delta === '') return [];
    const parts: LanguageModelV3StreamPart[] = [];
    let open = this.#open;
    if (open?.kind !== kind) {
      parts.push(...this.#close());
      open = { kind, id: `${kind}-${this.#blocks++}` };
      this.#open = open;
      parts.push({ type: `${kind}-start`, id: open.id });
    }
    parts.push({ type: `${kind}-delta`, id: open.id, delta });
    return parts;
  }

  #addCall({ id, name, arguments: delta }: ToolCallDelta): LanguageModelV3StreamPart[] {
    const parts: LanguageModelV3StreamPart[] = [];
    if (id !== undefined && name !== undefined) {
      parts.push(...this.#close(), { type: 'tool-input-start', id, toolName: name });
      this.#open = { kind: 'call', id, name, input: '' };
    }
    const call = this.#open;
    if (call?.kind !== 'call' || delta === '') return parts;
    call.input += delta;
    return [...parts, { type: 'tool-input-delta', id: call.id, delta }];
  }

  #close(): LanguageModelV3StreamPart[] {
    const open = this.#open;
    this.#open = undefined;
    if (open === undefined) return [];
    if (open.kind !== 'call') return [{ type: `${open.kind}-end`, id: open.id }];
    const { id, name: toolName, input } = open;
    return [
      { type: 'tool-input-end', id },
      { type: 'tool-call', toolCallId: id, toolName, input },
    ];
  }
}

interface OpenCall {
  readonly kind: 'call';
  readonly id: string;
  readonly name: string;
  input: string;
}

/** The parts of a whole answer. */
export function answerContent({ content, reasoning, toolCalls }: AnswerMessage): LanguageModelV3Content[] {
  return [
    ...(reasoning === '' ? [] : [{ type: 'reasoning', text: reasoning } as const]),
    ...(content === '' ? [] : [{ type: 'text', text: content } as const]),
    ...toolCalls.map(
      ({ id, name, arguments: input }) => ({ type: 'tool-call', toolCallId: id, toolName: name, input }) as const,
    ),
  ];
}

const reasons: Readonly<Record<ChatFinishReason, LanguageModelV3FinishReason['unified']>> = {
  stop: 'stop',
  length: 'length',
  tool_calls: 'tool-calls',
  error: 'error',
  abort: 'error',
};

export const finishReason = (raw: ChatFinishReason): LanguageModelV3FinishReason => ({ unified: reasons[raw], raw });

export function usageOf(stats: RequestStats): LanguageModelV3Usage {
  const cached = reusedTokens(stats);
  return {
    inputTokens: {
      total: stats.promptTokens,
      noCache: stats.promptTokens - cached,
      cacheRead: cached,
      cacheWrite: undefined,
    },
    outputTokens: { total: stats.outputTokens, text: undefined, reasoning: undefined },
    raw: { ...stats, loadedTokens: { ...stats.loadedTokens } },
  };
}
