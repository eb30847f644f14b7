import { threadEntry } from '../base/call-thread.ts';
import { KvasirError } from '../base/errors.ts';
import { NotJsonError, writeExactJson } from '../base/exact-json.ts';
import { JobThread } from '../base/job-thread.ts';
import { jobStopped } from '../base/thread-errors.ts';
import type { Timers } from '../base/timers.ts';
import type { RenderOptions, TemplateContext, TemplateMessage } from './chat-template.ts';
import { chatTemplateBroken, chatTemplateFailed, chatTemplateInvalid } from './errors.ts';

/** A template for the thread. Plain data. */
interface TemplateSource extends Pick<TemplateContext, 'bosToken' | 'eosToken'> {
  readonly source: string;
}

export type TemplateJob =
  | (TemplateSource & { readonly kind: 'check' })
  | (TemplateSource & {
      readonly kind: 'render';
      /** JSON of a `TemplateInput`: a copy of objects would lose digits of numbers and the order of names. */
      readonly input: string;
    });

export interface TemplateInput {
  readonly messages: readonly TemplateMessage[];
  readonly options: RenderOptions;
}

export type TemplateAnswer =
  | { readonly text: string }
  /** The template is not Jinja. */
  | { readonly invalid: string }
  /** The template refused the messages. */
  | { readonly refused: string }
  /** The template has an error of its own. */
  | { readonly broken: string };

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
   * The messages as text in the model's chat format.
   * @throws KvasirError `chatTemplateFailed`; `chatTemplateBroken`, also if the template does not end in time, or if a value is no JSON;
   * `threadUnavailable`; the reason of the signal
   */
  async render(messages: readonly TemplateMessage[], options: RenderOptions, signal?: AbortSignal): Promise<string> {
    const budgetMs = renderBudgetMs(messages);
    try {
      const input = writeExactJson({ messages, options } satisfies TemplateInput);
      const answer = await this.#thread.run({ kind: 'render', ...this.#template, input }, { budgetMs, signal });
      if ('text' in answer) return answer.text;
      if ('refused' in answer) throw chatTemplateFailed({ reason: answer.refused });
      throw chatTemplateBroken({ reason: 'broken' in answer ? answer.broken : answer.invalid });
    } catch (error) {
      if (error instanceof NotJsonError) throw chatTemplateBroken({ reason: `templates cannot use ${error.what}` });
      const reason = stopOf('rendering', error);
      throw reason === undefined ? error : chatTemplateBroken({ reason });
    }
  }
}

/** Undefined if the error has another cause. */
function stopOf(what: string, error: unknown): string | undefined {
  const isStop = error instanceof KvasirError && error.code === jobStopped.definition.code;
  return isStop ? `${what} was stopped because ${error.fields.reason}` : undefined;
}
