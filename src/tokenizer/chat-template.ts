import { byEntries } from '../base/by-name.ts';
import { RaisedError } from '../jinja/errors.ts';
import { compileTemplate, type Template } from '../jinja/template.ts';
import { ContentForms } from './content-forms.ts';
import { chatTemplateBroken, chatTemplateFailed, chatTemplateInvalid } from './errors.ts';
import { formatDate } from './format-date.ts';

export interface TemplateMessage {
  readonly role: string;
  /** Text, or parts as in OpenAI's API. */
  readonly content: string | readonly TemplatePart[] | null;
  readonly [extra: string]: unknown;
}

export interface TemplatePart {
  readonly type: string;
  readonly text?: string;
  readonly [extra: string]: unknown;
}

export interface RenderOptions {
  /** Whether the text ends with the start of the assistant's turn. Default true. */
  readonly addGenerationPrompt?: boolean;
  /**
   * Other names that the template can read: `tools`, `enable_thinking`, ... JSON values; numbers of `readExactJson` keep all digits.
   * They do not replace `messages` and the model's tokens.
   */
  readonly variables?: Readonly<Record<string, unknown>>;
  /** Limits the work (`jinja/template.ts`). Default: in proportion to the messages. */
  readonly work?: number;
}

export interface ChatTemplate {
  /**
   * The messages as text in the model's chat format. The work is limited, and the limit depends on the messages only.
   * @throws KvasirError `chatTemplateFailed` with the template's message, or `chatTemplateBroken`
   */
  render(messages: readonly TemplateMessage[], options?: RenderOptions): string;
}

export interface TemplateContext {
  /** Texts of the model's tokens; empty if it has none. */
  readonly bosToken: string;
  readonly eosToken: string;
  /** The model's template for conversations with tools, if it has one of its own. */
  readonly toolTemplate?: string | undefined;
  /** For `strftime_now`; default: the system's clock. */
  readonly now?: () => Date;
}

/**
 * Compiles a model's chat template, with the names that Hugging Face's transformers defines for templates.
 * @throws KvasirError `chatTemplateInvalid` if it is not Jinja
 */
export function compileChatTemplate(source: string, context: TemplateContext): ChatTemplate {
  const plain = compileOne(source, context);
  const withTools = context.toolTemplate === undefined ? plain : compileOne(context.toolTemplate, context);
  return {
    render(messages, options = {}) {
      const tools = options.variables?.tools;
      const template = Array.isArray(tools) && tools.length > 0 ? withTools : plain;
      return template.render(messages, options);
    },
  };
}

function compileOne(source: string, { bosToken, eosToken, now = () => new Date() }: TemplateContext): ChatTemplate {
  const template = compiled(source);
  const functions = { strftime_now: (format: string) => formatDate(now(), format) };
  const run = (
    messages: readonly object[],
    { addGenerationPrompt = true, variables = {}, work }: RenderOptions,
  ): string => {
    const names = {
      // Templates test whether there are tools, and not whether the name is defined.
      tools: null,
      documents: null,
      ...variables,
      bos_token: bosToken,
      eos_token: eosToken,
      add_generation_prompt: addGenerationPrompt,
      messages,
    };
    return template.render(names, { functions, work });
  };
  const forms = new ContentForms(run);
  return {
    render(messages, options = {}) {
      try {
        const adapted = messages.map((message) => withoutNulls(withReasoning(forms.adapt(message))));
        return run(adapted, options);
      } catch (cause) {
        const reason = reasonOf(cause);
        throw cause instanceof RaisedError
          ? chatTemplateFailed({ reason }, cause)
          : chatTemplateBroken({ reason }, cause);
      }
    },
  };
}

function compiled(source: string): Template {
  try {
    return compileTemplate(source);
  } catch (cause) {
    throw chatTemplateInvalid({ reason: reasonOf(cause) }, cause);
  }
}

/** As transformers does: templates test whether a field is there. */
function withoutNulls(message: TemplateMessage): object {
  const fields = Object.entries(message);
  return fields.some(([, value]) => value === null) ? byEntries(fields.filter(([, value]) => value !== null)) : message;
}

/** The names that thoughts of an answer have in APIs and templates. */
export const reasoningNames = ['reasoning_content', 'thinking', 'reasoning'] as const;

/** The thoughts of an answer. */
export const reasoningOf = (message: TemplateMessage): unknown =>
  reasoningNames.map((name) => message[name]).find((thoughts) => thoughts !== undefined && thoughts !== null);

/** As transformers does: the thoughts of an answer have the names that templates read. */
function withReasoning(message: TemplateMessage): TemplateMessage {
  const thoughts = reasoningOf(message);
  return thoughts === undefined ? message : { thinking: thoughts, ...message, reasoning_content: thoughts };
}

const reasonOf = (cause: unknown): string => (cause instanceof Error ? cause.message : String(cause));
