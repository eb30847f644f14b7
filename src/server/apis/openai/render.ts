import type { JsonObject } from '../../../base/json.ts';
import {
  type AnswerDelta,
  type AnswerMessage,
  ChatAnswer,
  type ChatAnswerOptions,
  type ToolCallDelta,
} from '../../../engine/chat/chat-answer.ts';
import type { AnsweredDelta } from '../../../engine/early-end.ts';
import type { ChoiceOutput } from '../../generation/choice-collector.ts';
import type { RenderContext, Renderer, StreamForm } from '../../generation/renderer.ts';
import { type JsonList, LazyList } from '../../http/json-pieces.ts';
import { errorAnswer, type OpenAiErrorBody } from '../../http/server-errors.ts';
import { chatLogprobs, completionLogprobs, offsetsIn, TextOffset } from './logprobs.ts';
import { echoLogprobs, joinLogprobs, PromptScores, renderPromptLogprobs } from './prompt-logprobs.ts';
import { openAiUsage } from './prompt-usage.ts';
import type {
  ChatBody,
  ChatChoice,
  ChatChunk,
  ChatChunkChoice,
  ChatDelta,
  ChatToolCallDelta,
  CompletionBody,
  CompletionChoice,
  CompletionChunk,
  Usage,
} from './types.ts';

export function completionRenderer(
  context: RenderContext,
): Renderer<CompletionChunk | OpenAiErrorBody, CompletionBody> {
  const { engine, id, created, echoes } = context;
  const { returnTokenIds, promptLogprobs, echoedLogprobs } = context.asked;
  const head = { id, object: 'text_completion', created, model: engine.model.name } as const;
  const choiceCount = context.prompts.length * context.n;
  /** Of choices whose deltas are sent one by one. */
  const textOffsets: TextOffset[] = [];
  const scores = new PromptScores(context.prompts, context.n, Math.max(promptLogprobs ?? 0, echoedLogprobs ?? 0));
  const isBegun = new Array<boolean>(choiceCount).fill(false);

  /** Of the whole output of a choice, they are computed when they are written. */
  const offsetsOf = (delta: ChoiceOutput, isFirst: boolean): JsonList<number> => {
    const { index } = delta;
    const begin = () => new TextOffset(echoes?.[Math.floor(index / context.n)] ?? '', engine.model.hasByteTokens);
    if (isFirst && delta.finish !== undefined) return new LazyList(() => offsetsIn(engine, delta, begin()));
    textOffsets[index] ??= begin();
    return [...offsetsIn(engine, delta, textOffsets[index])];
  };
  const choiceOf = (delta: ChoiceOutput): CompletionChoice => {
    const { index } = delta;
    const promptIndex = Math.floor(index / context.n);
    const isFirst = !isBegun[index];
    const echo = isFirst ? (echoes?.[promptIndex] ?? '') : '';
    isBegun[index] = true;
    const scored = scores.of(index);
    const logprobs = completionLogprobs(engine, delta, offsetsOf(delta, isFirst));
    return {
      index,
      text: echo + delta.text,
      logprobs:
        isFirst && echoedLogprobs !== undefined
          ? joinLogprobs(echoLogprobs(engine, scored, echoedLogprobs, echo), logprobs)
          : logprobs,
      ...(promptLogprobs === undefined
        ? {}
        : { prompt_logprobs: renderPromptLogprobs(engine, scored, promptLogprobs) }),
      finish_reason: delta.finish?.reason ?? null,
      stop_reason: delta.finish?.stopReason ?? null,
      ...(returnTokenIds ? { token_ids: idsOf(delta.tokenIds) } : {}),
      ...(returnTokenIds && isFirst ? { prompt_token_ids: idsOf(context.prompts[promptIndex]!.tokens) } : {}),
    };
  };
  const chunksOf = (delta: AnsweredDelta, usage: ChunkUsage): CompletionChunk[] =>
    isVisible(delta, returnTokenIds) || beginsWithEcho(delta)
      ? [{ ...head, choices: [choiceOf(delta)], ...usage, ...kvTransferParamsField([delta]) }]
      : [];

  /** The prompt is echoed at once, but its logprobs are complete only when the prompt is computed. */
  const beginsWithEcho = ({ index, tokenIds }: AnsweredDelta): boolean =>
    !isBegun[index] && echoes !== undefined && (echoedLogprobs === undefined || tokenIds.length > 0);

  /** The first choice of a prompt computes its logprobs. The others may have tokens before: a cached prompt is not computed for them. */
  const held: { readonly delta: AnsweredDelta; readonly usage: ChunkUsage }[] = [];

  return {
    form: openAiForm(context, (usage) => ({ ...head, choices: [], usage })),
    chunks: (delta) => {
      const usage = chunkUsage(context);
      if (echoedLogprobs === undefined) return chunksOf(delta, usage);
      if (delta.promptLogprobs !== undefined) scores.add(delta.index, delta.promptLogprobs);
      held.push({ delta, usage });
      if (!scores.isComplete(delta.index)) return [];
      const prompt = scores.of(delta.index);
      const ready = held.filter((other) => scores.of(other.delta.index) === prompt);
      held.splice(0, held.length, ...held.filter((other) => scores.of(other.delta.index) !== prompt));
      return ready.flatMap((other) => chunksOf(other.delta, other.usage));
    },
    body: (choices) => {
      for (const { index, promptLogprobs } of choices)
        if (promptLogprobs !== undefined) scores.put(index, promptLogprobs);
      return {
        ...head,
        choices: choices.map(choiceOf),
        usage: openAiUsage(context.usage),
        ...kvTransferParamsField(choices),
      };
    },
  };
}

export function chatRenderer(context: RenderContext): Renderer<ChatChunk | OpenAiErrorBody, ChatBody> {
  const { engine, id, created } = context;
  const { returnTokenIds, promptLogprobs } = context.asked;
  const head = { id, created, model: engine.model.name };
  const chunkHead = { ...head, object: 'chat.completion.chunk' } as const;
  const promptIds = returnTokenIds ? { prompt_token_ids: idsOf(context.prompts[0]!.tokens) } : {};
  const isBegun = new Array<boolean>(context.n).fill(false);
  const answers = Array.from({ length: context.n }, () => new ChatAnswer(context.answers ?? plainAnswers));

  /** The first chunk has only the role, as with OpenAI. */
  const opening = (index: number): ChatChunkChoice => {
    isBegun[index] = true;
    return { index, delta: { role: 'assistant', content: '' }, logprobs: null, finish_reason: null };
  };
  const continuation = (delta: AnsweredDelta, added: ChatDelta): ChatChunkChoice => ({
    index: delta.index,
    delta: added,
    logprobs: chatLogprobs(engine, delta),
    finish_reason: answers[delta.index]!.finishReason(delta.finish) ?? null,
    ...(delta.finish === undefined ? {} : { stop_reason: delta.finish.stopReason ?? null }),
    ...(returnTokenIds ? { token_ids: idsOf(delta.tokenIds) } : {}),
  });

  return {
    form: openAiForm(context, (usage) => ({ ...chunkHead, choices: [], usage })),
    chunks: (delta) => {
      const usage = chunkUsage(context);
      const chunks: ChatChunk[] = [];
      if (!isBegun[delta.index]) {
        chunks.push({ ...chunkHead, choices: [opening(delta.index)], ...promptIds, ...usage });
      }
      const added = chatDelta(answers[delta.index]!.add(delta));
      if (Object.keys(added).length > 0 || isVisible({ ...delta, text: '' }, returnTokenIds)) {
        chunks.push({
          ...chunkHead,
          choices: [continuation(delta, added)],
          ...usage,
          ...kvTransferParamsField([delta]),
        });
      }
      return chunks;
    },
    body: (choices) => ({
      ...head,
      object: 'chat.completion',
      choices: choices.map((delta) => {
        const answer = answers[delta.index]!;
        answer.add(delta);
        return {
          index: delta.index,
          message: chatMessage(answer.message()),
          logprobs: chatLogprobs(engine, delta),
          finish_reason: answer.finishReason(delta.finish) ?? null,
          stop_reason: delta.finish?.stopReason ?? null,
          ...(returnTokenIds ? { token_ids: idsOf(delta.tokenIds) } : {}),
        };
      }),
      usage: openAiUsage(context.usage),
      ...promptIds,
      ...(promptLogprobs === undefined
        ? {}
        : {
            prompt_logprobs: renderPromptLogprobs(
              engine,
              { tokens: context.prompts[0]!.tokens, entries: choices[0]?.promptLogprobs ?? [] },
              promptLogprobs,
            ),
          }),
      ...kvTransferParamsField(choices),
    }),
  };
}

const plainAnswers: ChatAnswerOptions = {
  format: { tools: undefined, offered: [], reasoning: undefined },
  prompt: '',
  areParallel: true,
};

const idsOf = (tokens: ArrayLike<number>): LazyList<number> => new LazyList(() => Array.from(tokens));

function isVisible(delta: AnsweredDelta, returnTokenIds: boolean): boolean {
  if (delta.text !== '' || delta.finish !== undefined) return true;
  return delta.tokenIds.length > 0 && (returnTokenIds || delta.logprobs !== undefined);
}

type ChunkUsage = Pick<ChatChunk, 'usage'>;

/** If a stream ends with the usage, its other chunks have null. */
function chunkUsage({ asked, usage }: RenderContext): ChunkUsage {
  if (asked.continuousUsage) return { usage: openAiUsage(usage) };
  return asked.includeUsage ? { usage: null } : {};
}

/** OpenAI's streams end with `[DONE]`, and before it with a chunk that has no choices, only the usage of all choices. */
const openAiForm = <Chunk extends object>(
  { asked, usage }: RenderContext,
  usageChunk: (usage: Usage) => Chunk,
): StreamForm<Chunk | OpenAiErrorBody> => ({
  isPlain: asked.params.logprobs === undefined,
  end: () => [...(asked.includeUsage ? [JSON.stringify(usageChunk(openAiUsage(usage)))] : []), '[DONE]'],
  ofError: (error) => [errorAnswer(error).body],
});

/**
 * The connector's answer to the client, and the counts of promised, computed and failed KV. In a stream the chunk that
 * ends a choice has it.
 */
export function kvTransferParamsField(deltas: readonly Pick<AnsweredDelta, 'finish' | 'stats'>[]): {
  kv_transfer_params?: JsonObject;
} {
  const ended = deltas.filter(({ finish }) => finish !== undefined);
  const kvTransferParams = ended.find(({ finish }) => finish?.kvTransferParams !== undefined)?.finish?.kvTransferParams;
  const isLoaded = ended.some(({ stats }) => stats.externalTokens !== undefined);
  return kvTransferParams === undefined && !isLoaded
    ? {}
    : { kv_transfer_params: { ...kvTransferParams, ...loadsOf(ended) } };
}

/** The names are those of `usage.prompt_tokens_details`. */
function loadsOf(ended: readonly Pick<AnsweredDelta, 'stats'>[]): JsonObject {
  const sum = (count: (stats: AnsweredDelta['stats']) => number): number =>
    ended.reduce((all, { stats }) => all + count(stats), 0);
  return {
    external_tokens: sum(({ externalTokens }) => externalTokens ?? 0),
    computed_tokens: sum(({ computedTokens }) => computedTokens),
    recomputed_tokens: sum(({ recomputedTokens }) => recomputedTokens),
    failed_loads: sum(({ failedLoads }) => failedLoads ?? 0),
  };
}

/** The delta of a streamed answer in OpenAI's format. Without text and calls it has no fields. */
const chatDelta = ({ content, reasoning, toolCalls }: AnswerDelta): ChatDelta => ({
  ...(content === '' ? {} : { content }),
  ...(reasoning === '' ? {} : { reasoning_content: reasoning }),
  ...(toolCalls.length === 0 ? {} : { tool_calls: toolCalls.map(callDelta) }),
});

/** The whole answer in OpenAI's format. */
const chatMessage = ({ content, reasoning, toolCalls }: AnswerMessage): ChatChoice['message'] => ({
  role: 'assistant',
  content: content === '' && toolCalls.length > 0 ? null : content,
  refusal: null,
  annotations: [],
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
