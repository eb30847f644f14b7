import { assertDefined } from '../../../base/assert.ts';
import { ChatAnswer, type ChatAnswerOptions } from '../../../engine/chat/chat-answer.ts';
import type { AsyncEngine } from '../../../engine/contract.ts';
import type { AnsweredDelta } from '../../../engine/early-end.ts';
import { argumentsJson } from '../../generation/arguments-json.ts';
import type { ChoiceOutput } from '../../generation/choice-collector.ts';
import type { RenderContext, Renderer } from '../../generation/renderer.ts';
import { namesOf } from '../../generation/token-names.ts';
import { type JsonList, LazyList, RawJson } from '../../http/json-pieces.ts';
import { errorAnswer } from '../../http/server-errors.ts';
import { atLeastMin } from '../openai/logprobs.ts';
import { ollamaError } from './ollama-paths.ts';
import type { OllamaAnswer, OllamaCall, OllamaError, OllamaLogprob } from './ollama-types.ts';

/** Where an answer has its text: `message` in `/api/chat`, `response` in `/api/generate`. */
export type OllamaForm = 'message' | 'response';

/** Writes answers. Calls are written when they are complete. */
export const ollamaRenderer =
  (form: OllamaForm) =>
  (context: RenderContext): Renderer<OllamaAnswer | OllamaError, OllamaAnswer> => {
    const { engine, usage } = context;
    const answer = new ChatAnswer(context.answers ?? plainText);
    const line = (content: string, thinking: string, calls: readonly OllamaCall[]) =>
      lineOf(form, engine.model.name, { content, thinking, calls });
    const calls = (): OllamaCall[] =>
      answer.message().toolCalls.map(({ id, name, arguments: json }, index) => ({
        id,
        function: { index, name, arguments: argumentsJson(json) },
      }));
    const end = (finish: AnsweredDelta['finish']) => {
      const { elapsedMs, timeToFirstTokenMs = elapsedMs } = usage;
      const [total, read] = [nanoseconds(elapsedMs), nanoseconds(timeToFirstTokenMs)];
      return {
        done: true,
        done_reason: finish?.reason === 'length' ? 'length' : 'stop',
        total_duration: total,
        load_duration: 0,
        prompt_eval_count: usage.promptTokens,
        prompt_eval_duration: read,
        eval_count: usage.outputTokens,
        // Clients divide by it.
        eval_duration: Math.max(1, total - read),
      } as const;
    };
    return {
      form: { isLines: true, ofError: (error) => [ollamaError(errorAnswer(error))] },
      chunks: (delta) => {
        const { content, reasoning } = answer.add(delta);
        const { finish } = delta;
        const made = finish === undefined ? [] : calls();
        const scores = logprobsOf(engine, delta);
        const isEmpty = content === '' && reasoning === '' && made.length === 0 && scores.logprobs === undefined;
        const lines = isEmpty ? [] : [{ ...line(content, reasoning, made), ...scores }];
        if (finish === undefined) return lines;
        return [...lines, { ...line('', '', []), ...end(finish) }];
      },
      body: ([choice]) => {
        const output = assertDefined(choice, 'one choice');
        answer.add(output);
        const { content, reasoning } = answer.message();
        return { ...line(content, reasoning, calls()), ...end(output.finish), ...logprobsOf(engine, output) };
      },
    };
  };

/** The answer to a request for no text. */
export const answerWithoutText = (form: OllamaForm, model: string, done_reason: 'load' | 'unload'): OllamaAnswer => ({
  ...lineOf(form, model, { content: '', thinking: '', calls: [] }),
  done: true,
  done_reason,
});

interface LineParts {
  readonly content: string;
  readonly thinking: string;
  readonly calls: readonly OllamaCall[];
}

function lineOf(form: OllamaForm, model: string, { content, thinking, calls }: LineParts): OllamaAnswer {
  const thoughts = thinking === '' ? {} : { thinking };
  const made = calls.length === 0 ? {} : { tool_calls: calls };
  return {
    model,
    created_at: new Date().toISOString(),
    ...(form === 'message'
      ? { message: { role: 'assistant', content, ...thoughts, ...made } }
      : { response: content, ...thoughts }),
    done: false,
  };
}

const plainText: ChatAnswerOptions = {
  format: { tools: undefined, offered: [], reasoning: undefined },
  prompt: '',
  areParallel: true,
};

const nanoseconds = (ms: number): number => Math.round(ms * 1e6);

/** Without the token that ends an answer, which is no part of the text. */
function logprobsOf(
  engine: AsyncEngine,
  { tokenIds, logprobs, finish }: Pick<ChoiceOutput, 'tokenIds' | 'logprobs' | 'finish'>,
): { readonly logprobs?: JsonList<OllamaLogprob> } {
  if (logprobs === undefined) return {};
  const last = tokenIds[tokenIds.length - 1];
  const hasEnd = finish?.reason === 'stop' && last !== undefined && engine.detokenize([last]) === '';
  const count = logprobs.length - (hasEnd ? 1 : 0);
  if (count === 0) return {};
  return {
    logprobs: new LazyList(function* () {
      let i = 0;
      for (const { logprob, top } of logprobs) {
        if (i === count) return;
        const others = top.map((other) => `${tokenJson(engine, other.token, other.logprob)}}`).join(',');
        const all = others === '' ? '' : `,"top_logprobs":[${others}]`;
        yield new RawJson<OllamaLogprob>(`${tokenJson(engine, tokenIds[i++]!, logprob)}${all}}`);
      }
    }),
  };
}

/** The beginning of an object. */
function tokenJson(engine: AsyncEngine, token: number, logprob: number): string {
  const { textJson, bytesJson } = namesOf(engine, token);
  const bytes = bytesJson === '[]' ? '' : `,"bytes":${bytesJson}`;
  return `{"token":${textJson},"logprob":${atLeastMin(logprob)}${bytes}`;
}
