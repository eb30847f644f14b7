import { Environment, Interpreter, Template } from '@huggingface/jinja';
import { chatTemplateFailed, chatTemplateInvalid } from './errors.ts';
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
  /** Other names that the template can read: `tools`, `enable_thinking`, ... They do not replace predefined names. */
  readonly variables?: Readonly<Record<string, unknown>>;
}

export interface ChatTemplate {
  /** The messages as text in the model's chat format. Throws `chatTemplateFailed` with the template's message. */
  render(messages: readonly TemplateMessage[], options?: RenderOptions): string;
}

export interface TemplateContext {
  /** Texts of the model's tokens; empty if it has none. */
  readonly bosToken: string;
  readonly eosToken: string;
  /** For `strftime_now`; default: the system's clock. */
  readonly now?: () => Date;
}

/**
 * Compiles a model's chat template, with the names that Hugging Face's transformers defines for templates. Throws
 * `chatTemplateInvalid` if it is not Jinja.
 */
export function compileChatTemplate(source: string, context: TemplateContext): ChatTemplate {
  let template: Template;
  try {
    template = new Template(source);
  } catch (cause) {
    throw chatTemplateInvalid({ reason: reasonOf(cause) }, cause);
  }
  const now = context.now ?? (() => new Date());
  const adapt = contentAdapter(source);
  return {
    render(messages, options = {}) {
      const variables = {
        ...options.variables,
        bos_token: context.bosToken,
        eos_token: context.eosToken,
        add_generation_prompt: options.addGenerationPrompt ?? true,
        messages: messages.map(adapt),
        raise_exception: raiseException,
        strftime_now: (format: string) => formatDate(now(), format),
        range,
        true: true,
        True: true,
        false: false,
        False: false,
        none: null,
        None: null,
      };
      try {
        return run(template, variables);
      } catch (cause) {
        throw chatTemplateFailed({ reason: reasonOf(cause) }, cause);
      }
    },
  };
}

function run(template: Template, variables: Readonly<Record<string, unknown>>): string {
  const environment = new Environment();
  for (const [name, value] of Object.entries(variables)) environment.set(name, value);
  const result = new Interpreter(environment).run(template.parsed);
  return String(result.value);
}

/**
 * Templates read content as text or as parts, and fail or render wrong text for the other form. A template with a loop
 * over the content reads parts; if it also has `is string`, it reads both.
 */
function contentAdapter(source: string): (message: TemplateMessage) => TemplateMessage {
  const loopsOverContent = /\bfor\s+\w+\s+in\s+\w+(\[\d+\])?(\.content|\[\s*['"]content['"]\s*\])\s*(-?%\}|if\b)/.test(
    source,
  );
  if (!loopsOverContent) return withPlainContent;
  return /\bis\s+string\b/.test(source) ? (message) => message : withParts;
}

function withPlainContent(message: TemplateMessage): TemplateMessage {
  const { content } = message;
  if (content === null || typeof content === 'string') return message;
  return { ...message, content: content.map((part) => part.text ?? '').join('\n') };
}

function withParts(message: TemplateMessage): TemplateMessage {
  const { content } = message;
  return typeof content === 'string' ? { ...message, content: [{ type: 'text', text: content }] } : message;
}

function raiseException(message: unknown): never {
  throw new Error(String(message));
}

const RANGE_MAX = 100_000;

/** Python's `range`. */
function range(first: number, second?: number, step = 1): number[] {
  const [start, end] = second === undefined ? [0, first] : [first, second];
  const length = Math.max(0, Math.ceil((end - start) / step));
  if (!(length <= RANGE_MAX)) throw new Error(`range() of ${length} numbers, more than ${RANGE_MAX}`);
  return Array.from({ length }, (_, i) => start + i * step);
}

const reasonOf = (cause: unknown): string => (cause instanceof Error ? cause.message : String(cause));
