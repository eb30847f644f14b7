import {
  compileChatTemplate,
  type RenderOptions,
  type TemplateContext,
  type TemplateMessage,
} from '../tokenizer/chat-template.ts';
import { formatDate } from '../tokenizer/format-date.ts';
import { formatOfTemplate } from '../tools/formats.ts';
import { completeTool } from './complete-tools.ts';
import { describeTools } from './describe-tools.ts';
import { fitConversation } from './fit-conversation.ts';
import { type Change, changes } from './fit-turns.ts';
import { openProbe, type Probe } from './probe.ts';

export interface FittedPrompt {
  readonly text: string;
  /** What was changed because the template does not take it: sentences for the log. */
  readonly changes: readonly string[];
}

/**
 * A chat template that takes all conversations. A template may refuse messages (a second system message, users in a row, two calls) or
 * lose their texts without a word. What it does is seen by rendering short conversations, once for each shape that a conversation has.
 * A conversation that the template takes is rendered as it is.
 */
export interface FittedTemplate {
  /** As `ChatTemplate.render`. */
  render(messages: readonly TemplateMessage[], options?: RenderOptions): FittedPrompt;
}

/** @throws KvasirError `chatTemplateInvalid` */
export function fittedTemplate(source: string, context: TemplateContext): FittedTemplate {
  const template = compileChatTemplate(source, context);
  const format = formatOfTemplate(context.toolTemplate ?? source);
  const writer = format === 'lfm2' ? 'lfm2' : 'hermes';
  const today = (): string => formatDate(context.now?.() ?? new Date(), '%d %b %Y');
  const probes = new Map<boolean, Probe | undefined>();
  const probeOf = (hasTools: boolean): Probe | undefined => {
    if (!probes.has(hasTools))
      probes.set(hasTools, openProbe(template, hasTools, { writer, isHarmony: format === 'openai', today }));
    return probes.get(hasTools);
  };
  const fitted = (messages: readonly TemplateMessage[], options: RenderOptions, probe: Probe): FittedPrompt => {
    const found = new Set<Change>();
    const fit = fitConversation(messages, probe.settings, (change) => found.add(change));
    const given = options.variables?.tools;
    const tools: readonly unknown[] | undefined = Array.isArray(given) ? given : undefined;
    const write = (shown: typeof tools): string =>
      template.render(fit, { ...options, variables: { ...options.variables, ...probe.names(shown) } });
    const text = withCompleteTools(tools, write, () => found.add('toolFields'));
    return { text, changes: [...found].map((change) => changes[change]) };
  };
  return {
    render(messages, options = {}) {
      const { tools, ...others } = options.variables ?? {};
      const shown: readonly unknown[] = Array.isArray(tools) ? tools : [];
      const probe = probeOf(shown.length > 0);
      if (probe !== undefined) return fitted(messages, options, probe);
      const plain = shown.length > 0 ? probeOf(false) : undefined;
      if (plain === undefined) return { text: template.render(messages, options), changes: [] };
      const described = fitted(describeTools(messages, shown), { ...options, variables: others }, plain);
      return { ...described, changes: [changes.tools, ...described.changes] };
    },
  };
}

/** Renders with the tools as they are, and if the template refuses them, with what it may miss of them. */
function withCompleteTools(
  tools: readonly unknown[] | undefined,
  render: (tools: readonly unknown[] | undefined) => string,
  onChange: () => void,
): string {
  try {
    return render(tools);
  } catch (error) {
    if (tools === undefined) throw error;
    try {
      const text = render(tools.map(completeTool));
      onChange();
      return text;
    } catch {
      throw error;
    }
  }
}
