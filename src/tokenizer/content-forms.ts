import type { RenderOptions, TemplateMessage, TemplatePart } from './chat-template.ts';

/** What a template reads as the content of a message: a text, a list of parts, or either. */
type ContentForm = 'text' | 'parts' | 'both';

type Render = (messages: readonly object[], options: RenderOptions) => string;

/**
 * Templates read content as text or as parts, and fail or write wrong text for the other form. What a template reads is seen by
 * rendering short conversations: its source can read parts in many ways (loops, macros, filters, the first item). Some templates
 * read parts in the messages of some roles only.
 */
export class ContentForms {
  readonly #render: Render;
  readonly #forms = new Map<string, ContentForm>();

  constructor(render: Render) {
    this.#render = render;
  }

  /** The message with content that the template reads: parts that it does not read are joined by newlines, as in vLLM. */
  adapt(message: TemplateMessage): TemplateMessage {
    const { content } = message;
    if (content === null || content === undefined) return message;
    const form = this.#of(message.role);
    if (typeof content === 'string') return form === 'parts' ? { ...message, content: [textPart(content)] } : message;
    if (form !== 'text') return message;
    return { ...message, content: content.map((part) => part.text ?? '').join('\n') };
  }

  #of(role: string): ContentForm {
    const asked = Object.hasOwn(probes, role) ? role : 'user';
    let form = this.#forms.get(asked);
    if (form === undefined) {
      form = this.#probe(probes[asked]!);
      this.#forms.set(asked, form);
    }
    return form;
  }

  #probe(conversation: (content: TemplateMessage['content']) => readonly TemplateMessage[]): ContentForm {
    const text = conversation(marker);
    const parts = conversation([textPart(marker), textPart('other')]);
    for (const tools of [null, [probeTool]]) {
      const [readsText, readsParts] = [this.#shows(text, tools), this.#shows(parts, tools)];
      if (readsText || readsParts) return readsParts ? (readsText ? 'both' : 'parts') : 'text';
    }
    return 'text';
  }

  /** Whether the template writes the text of the content, and not Python's or JSON's form of the parts. */
  #shows(messages: readonly TemplateMessage[], tools: unknown): boolean {
    try {
      const text = this.#render(messages, { addGenerationPrompt: false, variables: { tools }, work: probeWork });
      return text.includes(marker) && !/["']type["']\s*:\s*["']text["']/.test(text);
    } catch {
      return false;
    }
  }
}

const textPart = (text: string): TemplatePart => ({ type: 'text', text });

/** More than templates of models need for short conversations. */
export const probeWork = 100_000;

const marker = 'qzvkw';
const question = { role: 'user', content: 'Hi' };
const call = { id: 'abcdef123', type: 'function', function: { name: 'now', arguments: {} } };
const probeTool = {
  type: 'function',
  function: { name: 'now', description: 'The time.', parameters: { type: 'object', properties: {}, required: [] } },
};

/** Conversations with this content in a message of the role. */
const probes: Readonly<Record<string, (content: TemplateMessage['content']) => readonly TemplateMessage[]>> = {
  user: (content) => [{ role: 'user', content }],
  system: (content) => [{ role: 'system', content }, question],
  developer: (content) => [{ role: 'developer', content }, question],
  assistant: (content) => [question, { role: 'assistant', content }, question],
  tool: (content) => [
    question,
    { role: 'assistant', content: '', tool_calls: [call] },
    { role: 'tool', tool_call_id: call.id, name: 'now', content },
  ],
};
