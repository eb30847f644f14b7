import { threadEntry } from '../base/call-thread.ts';
import { KvasirError } from '../base/errors.ts';
import { JobThread } from '../base/job-thread.ts';
import { jobStopped } from '../base/thread-errors.ts';
import type { Timers } from '../base/timers.ts';
import {
  compileChatTemplate,
  type RenderOptions,
  type TemplateContext,
  type TemplateMessage,
} from './chat-template.ts';
import { chatTemplateFailed, chatTemplateInvalid } from './errors.ts';

/** A template for the thread. Plain data. */
interface TemplateSource extends Pick<TemplateContext, 'bosToken' | 'eosToken'> {
  readonly source: string;
}

export type TemplateJob =
  | (TemplateSource & { readonly kind: 'check' })
  | (TemplateSource & {
      readonly kind: 'render';
      readonly messages: readonly object[];
      readonly options: RenderOptions;
    });

export type TemplateAnswer =
  | { readonly text: string }
  /** The template is not Jinja. */
  | { readonly invalid: string }
  /** The template refused the messages. */
  | { readonly refused: string };

export type TemplateThread = JobThread<TemplateJob, TemplateAnswer>;

/** A thread that parses and renders templates: a template of a model file may contain a loop that never ends. */
export const openTemplateThread = (timers?: Timers): TemplateThread =>
  new JobThread({
    entry: threadEntry(import.meta.url, 'template-thread-main'),
    name: 'kvasir-template',
    work: 'Rendering chats',
    ...(timers === undefined ? {} : { timers }),
  });

/** Real templates are parsed in 20 ms. */
const parseBudgetMs = 10_000;

/** Thirty times what a usual template takes: 64 microseconds per message, and 16 characters per microsecond. */
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
   * The messages as text in the model's chat format. Renders on the caller's thread if variables cannot be copied to another thread,
   * such as functions.
   * @throws KvasirError `chatTemplateFailed`, also if the template does not end in time; `threadUnavailable`; the reason of the signal
   */
  async render(messages: readonly TemplateMessage[], options: RenderOptions, signal?: AbortSignal): Promise<string> {
    const budgetMs = renderBudgetMs(messages);
    try {
      const answer = await this.#thread.run(
        { kind: 'render', ...this.#template, messages, options },
        { budgetMs, signal },
      );
      if ('text' in answer) return answer.text;
      throw chatTemplateFailed({ reason: 'refused' in answer ? answer.refused : answer.invalid });
    } catch (error) {
      if (error instanceof DOMException && error.name === 'DataCloneError') return this.#renderHere(messages, options);
      const reason = stopOf('rendering', error);
      throw reason === undefined ? error : chatTemplateFailed({ reason });
    }
  }

  #renderHere(messages: readonly TemplateMessage[], options: RenderOptions): string {
    const { source, ...context } = this.#template;
    return compileChatTemplate(source, context).render(messages, options);
  }
}

/** Undefined if the error has another cause. */
function stopOf(what: string, error: unknown): string | undefined {
  const isStop = error instanceof KvasirError && error.code === jobStopped.definition.code;
  return isStop ? `${what} was stopped because ${error.fields.reason}` : undefined;
}
