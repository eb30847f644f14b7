import { assertDefined } from '../../../base/assert.ts';
import type { AnsweredDelta } from '../../../engine/early-end.ts';
import type { RenderContext, Renderer, RequestUsage } from '../../generation/renderer.ts';
import { errorAnswer, type OpenAiErrorBody } from '../../http/server-errors.ts';
import type { InfillAnswer, InfillChunk, InfillTimings } from './infill-types.ts';

/** Writes the text of a gap as llama-server does. */
export function infillRenderer({
  engine,
  usage,
}: RenderContext): Renderer<InfillChunk | OpenAiErrorBody, InfillAnswer> {
  const startMs = performance.now();
  let firstMs: number | undefined;
  let hasNewLine = false;
  const chunk = (content: string): InfillChunk => {
    hasNewLine ||= content.includes('\n');
    return {
      index: 0,
      content,
      tokens: [],
      id_slot: 0,
      stop: false,
      tokens_predicted: usage.outputTokens,
      tokens_evaluated: usage.promptTokens,
    };
  };
  const end = (content: string, finish: AnsweredDelta['finish']): InfillAnswer => {
    const word = typeof finish?.stopReason === 'string' ? finish.stopReason : '';
    const nowMs = performance.now();
    return {
      ...chunk(content),
      stop: true,
      model: engine.model.name,
      has_new_line: hasNewLine,
      truncated: false,
      stop_type: finish?.reason === 'length' ? 'limit' : word === '' ? 'eos' : 'word',
      stopping_word: word,
      tokens_cached: usage.cachedTokens,
      timings: timings(usage, (firstMs ?? nowMs) - startMs, nowMs - (firstMs ?? nowMs)),
    };
  };
  return {
    form: { ofError: (error) => [errorAnswer(error).body] },
    chunks: ({ tokenIds, text, finish }) => {
      if (tokenIds.length > 0) firstMs ??= performance.now();
      const texts = text === '' ? [] : [chunk(text)];
      return finish === undefined ? texts : [...texts, end('', finish)];
    },
    body: ([choice]) => {
      const { text, finish } = assertDefined(choice, 'one choice');
      return end(text, finish);
    },
  };
}

function timings({ promptTokens, outputTokens, cachedTokens }: RequestUsage, ...ms: [number, number]) {
  const computed = promptTokens - cachedTokens;
  const [promptMs, predictedMs] = ms;
  return {
    cache_n: cachedTokens,
    prompt_n: computed,
    prompt_ms: promptMs,
    prompt_per_token_ms: ratio(promptMs, computed),
    prompt_per_second: ratio(1000 * computed, promptMs),
    predicted_n: outputTokens,
    predicted_ms: predictedMs,
    predicted_per_token_ms: ratio(predictedMs, outputTokens),
    predicted_per_second: ratio(1000 * outputTokens, predictedMs),
  } satisfies InfillTimings;
}

const ratio = (a: number, b: number): number => (b === 0 ? 0 : a / b);
