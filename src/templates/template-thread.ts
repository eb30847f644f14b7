import { KvasirError } from '../base/errors.ts';
import { writeExactJson } from '../base/exact-json.ts';
import { JobThread } from '../base/job-thread.ts';
import { entryPoint } from '../base/package-files.ts';
import { jobStopped } from '../base/thread-errors.ts';
import type { Timers } from '../base/timers.ts';
import type { RenderOptions, TemplateContext, TemplateMessage } from '../tokenizer/chat-template.ts';
import { chatTemplateBroken, chatTemplateFailed, chatTemplateInvalid } from '../tokenizer/errors.ts';
import type { FittedPrompt } from './fitted-template.ts';

/** A template for the thread. Plain data. */
export interface TemplateSource extends Pick<TemplateContext, 'bosToken' | 'eosToken' | 'toolTemplate'> {
  readonly source: string;
}

export type TemplateJob =
  | (TemplateSource & { readonly kind: 'check' })
  | (TemplateSource & {
      readonly kind: 'render';
      /** `TemplateInput` as exact JSON: a copy of the objects would lose digits and the order of names. */
      readonly input: string;
    });

export interface TemplateInput {
  readonly messages: readonly TemplateMessage[];
  readonly options: RenderOptions;
}

export type TemplateAnswer =
  | FittedPrompt
  /** The template is not Jinja. */
  | { readonly invalid: string }
  /** The template refused the messages. */
  | { readonly refused: string }
  /** The template failed. */
  | { readonly broken: string };

export type TemplateThread = JobThread<TemplateJob, TemplateAnswer>;

/** A thread that parses and renders templates: a long conversation, or a template of a model file with many loops, takes seconds. */
export const openTemplateThread = (timers?: Timers): TemplateThread =>
  new JobThread({
    entry: entryPoint('src/templates/template-thread-main'),
    name: 'kvasir-template',
    work: 'Rendering chats',
    ...(timers === undefined ? {} : { timers }),
  });

/** Real templates are parsed in 20 ms, and hostile ones in a second. */
const parseBudgetMs = 10_000;

/** A hundred times what a usual template takes. Before that, a template has used up its work (`jinja/meter.ts`). */
function renderBudgetMs(messages: readonly TemplateMessage[]): number {
  const length = messages.reduce((sum, { content }) => sum + (typeof content === 'string' ? content.length : 0), 0);
  return 10_000 + 2 * messages.length + length / 500;
}

/** A chat template on the thread. */
export class BackgroundTemplate {
  readonly #thread: TemplateThread;
  readonly #template: TemplateSource;

  constructor(thread: TemplateThread, template: TemplateSource) {
    this.#thread = thread;
    this.#template = template;
  }

  /** @throws KvasirError `chatTemplateInvalid`, also if the template cannot be parsed in time; `threadUnavailable` */
  async check(signal?: AbortSignal): Promise<void> {
    try {
      const answer = await this.#thread.run({ kind: 'check', ...this.#template }, { budgetMs: parseBudgetMs, signal });
      if ('invalid' in answer) throw chatTemplateInvalid({ reason: answer.invalid });
    } catch (error) {
      const reason = stopOf('parsing', error);
      throw reason === undefined ? error : chatTemplateInvalid({ reason });
    }
  }

  /**
   * The messages as text in the model's chat format.
   * @throws KvasirError `chatTemplateFailed`, also if the template does not end in time; `chatTemplateBroken`, also if a variable is not
   * JSON; `threadUnavailable`; the reason of the signal
   */
  async render(
    messages: readonly TemplateMessage[],
    options: RenderOptions,
    signal?: AbortSignal,
  ): Promise<FittedPrompt> {
    const budgetMs = renderBudgetMs(messages);
    const input = inputOf({ messages, options });
    try {
      const answer = await this.#thread.run({ kind: 'render', ...this.#template, input }, { budgetMs, signal });
      if ('text' in answer) return answer;
      if ('broken' in answer) throw chatTemplateBroken({ reason: answer.broken });
      throw chatTemplateFailed({ reason: 'refused' in answer ? answer.refused : answer.invalid });
    } catch (error) {
      const reason = stopOf('rendering', error);
      throw reason === undefined ? error : chatTemplateFailed({ reason });
    }
  }
}

function inputOf(input: TemplateInput): string {
  try {
    return writeExactJson(input);
  } catch (cause) {
    throw chatTemplateBroken({ reason: cause instanceof Error ? cause.message : String(cause) }, cause);
  }
}

/** Undefined if the error has another cause. */
function stopOf(what: string, error: unknown): string | undefined {
  const isStop = error instanceof KvasirError && error.code === jobStopped.definition.code;
  return isStop ? `${what} was stopped because ${error.fields.reason}` : undefined;
}
