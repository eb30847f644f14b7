import { assertDefined } from '../../base/assert.ts';
import { ChatAnswer, type ChatAnswerOptions } from '../../engine/chat/chat-answer.ts';
import type { OutputDelta } from '../../engine/contract.ts';
import { argumentsJson } from '../arguments-json.ts';
import type { RenderContext, Renderer } from '../openai-render.ts';
import type { Usage } from '../openai-types.ts';
import { errorAnswer } from '../server-errors.ts';
import type { OllamaAnswer, OllamaCall, OllamaError } from './ollama-types.ts';

/** Writes answers of `/api/chat` (`message`) or `/api/generate` (`response`). Calls are written when they are complete. */
export const ollamaRenderer =
  (form: 'message' | 'response') =>
  (context: RenderContext): Renderer<OllamaAnswer | OllamaError, OllamaAnswer> => {
    const answer = new ChatAnswer(context.answers ?? plainText);
    const model = context.engine.model.name;
    const startMs = performance.now();
    let firstMs: number | undefined;
    const line = (content: string, thinking: string, calls: readonly OllamaCall[]): OllamaAnswer => {
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
    };
    const calls = (): OllamaCall[] =>
      answer.message().toolCalls.map(({ id, name, arguments: json }, index) => ({
        id,
        function: { index, name, arguments: argumentsJson(json) },
      }));
    const end = (finish: OutputDelta['finish'], { prompt_tokens, completion_tokens }: Usage) => {
      const nowMs = performance.now();
      const readMs = (firstMs ?? nowMs) - startMs;
      return {
        done: true,
        done_reason: finish?.reason === 'length' ? 'length' : 'stop',
        total_duration: nanoseconds(nowMs - startMs),
        load_duration: 0,
        prompt_eval_count: prompt_tokens,
        prompt_eval_duration: nanoseconds(readMs),
        eval_count: completion_tokens,
        eval_duration: nanoseconds(nowMs - startMs - readMs),
      } as const;
    };
    return {
      form: { isLines: true, ofError: (error) => ollamaError(errorAnswer(error)) },
      chunks: (delta, usage) => {
        if (delta.tokenIds.length > 0) firstMs ??= performance.now();
        const { content, reasoning } = answer.add(delta);
        const { finish } = delta;
        const made = finish === undefined ? [] : calls();
        const lines = content === '' && reasoning === '' && made.length === 0 ? [] : [line(content, reasoning, made)];
        if (finish === undefined) return lines;
        const known = assertDefined(usage ?? undefined, 'each delta has the usage');
        return [...lines, { ...line('', '', []), ...end(finish, known) }];
      },
      body: ([choice], usage) => {
        const output = assertDefined(choice, 'one choice');
        answer.add(output);
        const { content, reasoning } = answer.message();
        return { ...line(content, reasoning, calls()), ...end(output.finish, usage) };
      },
    };
  };

const plainText: ChatAnswerOptions = {
  format: { tools: undefined, offered: [], reasoning: undefined },
  prompt: '',
  areParallel: true,
};

const nanoseconds = (ms: number): number => Math.round(ms * 1e6);

/** An error in Ollama's form. */
export const ollamaError = ({
  body,
}: {
  readonly body: { readonly error: { readonly message: string } };
}): OllamaError => ({
  error: body.error.message,
});
