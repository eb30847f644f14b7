import { assertDefined } from '../../base/assert.ts';
import type { AnsweredDelta } from '../../engine/early-end.ts';
import type { RenderContext, Renderer } from '../openai-render.ts';
import type { Usage } from '../openai-types.ts';
import { errorAnswer, type OpenAiErrorBody } from '../server-errors.ts';
import type { InfillAnswer, InfillChunk, InfillTimings } from './infill-types.ts';

/** Writes the text of a gap as llama-server does. */
export function infillRenderer({ engine }: RenderContext): Renderer<InfillChunk | OpenAiErrorBody, InfillAnswer> {
  const startMs = performance.now();
  let firstMs: number | undefined;
  let hasNewLine = false;
  const chunk = (content: string, { prompt_tokens, completion_tokens }: Usage): InfillChunk => {
    hasNewLine ||= content.includes('\n');
    return {
      index: 0,
      content,
      tokens: [],
      id_slot: 0,
      stop: false,
      tokens_predicted: completion_tokens,
      tokens_evaluated: prompt_tokens,
    };
  };
  const end = (content: string, finish: AnsweredDelta['finish'], usage: Usage): InfillAnswer => {
    const word = typeof finish?.stopReason === 'string' ? finish.stopReason : '';
    const nowMs = performance.now();
    return {
      ...chunk(content, usage),
      stop: true,
      model: engine.model.name,
      has_new_line: hasNewLine,
      truncated: false,
      stop_type: finish?.reason === 'length' ? 'limit' : word === '' ? 'eos' : 'word',
      stopping_word: word,
      tokens_cached: usage.prompt_tokens_details.cached_tokens,
      timings: timings(usage, (firstMs ?? nowMs) - startMs, nowMs - (firstMs ?? nowMs)),
    };
  };
  return {
    form: { ofError: (error) => errorAnswer(error).body },
    chunks: ({ tokenIds, text, finish }, given) => {
      if (tokenIds.length > 0) firstMs ??= performance.now();
      const usage = assertDefined(given ?? undefined, 'each delta has the usage');
      const texts = text === '' ? [] : [chunk(text, usage)];
      return finish === undefined ? texts : [...texts, end('', finish, usage)];
    },
    body: ([choice], usage) => {
      const { text, finish } = assertDefined(choice, 'one choice');
      return end(text, finish, usage);
    },
  };
}

function timings({ prompt_tokens, completion_tokens, prompt_tokens_details }: Usage, ...ms: [number, number]) {
  const cached = prompt_tokens_details.cached_tokens;
  const computed = prompt_tokens - cached;
  const [promptMs, predictedMs] = ms;
  return {
    cache_n: cached,
    prompt_n: computed,
    prompt_ms: promptMs,
    prompt_per_token_ms: ratio(promptMs, computed),
    prompt_per_second: ratio(1000 * computed, promptMs),
    predicted_n: completion_tokens,
    predicted_ms: predictedMs,
    predicted_per_token_ms: ratio(predictedMs, completion_tokens),
    predicted_per_second: ratio(1000 * completion_tokens, predictedMs),
  } satisfies InfillTimings;
}

const ratio = (a: number, b: number): number => (b === 0 ? 0 : a / b);
