import { writeExactJson } from '../base/exact-json.ts';
import type { ChatTemplate, TemplateMessage } from '../tokenizer/chat-template.ts';
import { probeWork } from '../tokenizer/content-forms.ts';
import { type CallForm, inForm } from './call-forms.ts';
import { completeTool } from './complete-tools.ts';
import type { FitSettings } from './fit-conversation.ts';
import { conversationOf, marksOf, probedFunction } from './shapes.ts';

export interface Probe {
  readonly settings: FitSettings;
  /** Shows tools to the template. */
  readonly names: ToolNames;
}

/** Variables of a template that show tools; undefined: there are none. */
type ToolNames = (tools: readonly unknown[] | undefined) => Readonly<Record<string, unknown>>;

export interface ProbeOptions extends Omit<FitSettings, 'takes'> {
  readonly today: () => string;
}

/**
 * What a template takes in conversations with tools, or without. Undefined if it shows no tools, or not even a text of the user: then
 * there is nothing to learn from it.
 */
export function openProbe(template: ChatTemplate, hasTools: boolean, options: ProbeOptions): Probe | undefined {
  const tools = hasTools ? [probedTool] : undefined;
  const render = (messages: readonly TemplateMessage[], names: ToolNames): string | undefined => {
    try {
      return template.render(messages, { variables: names(tools), work: probeWork });
    } catch {
      return undefined;
    }
  };
  /** The prompt of a shape, if it has all texts in their order. */
  const promptOf = (names: ToolNames, shape: string, form?: CallForm): string | undefined => {
    const conversation = conversationOf(shape);
    const text = render(form === undefined ? conversation : inForm(conversation, form, options.writer), names);
    if (text === undefined || (hasTools && !text.includes(probedFunction))) return undefined;
    return marksOf(text).join() === marksOf(JSON.stringify(conversation)).join() ? text : undefined;
  };
  const names = toolNames(options.today).find((one) => promptOf(one, 'U') !== undefined);
  if (names === undefined) return undefined;
  const known = new Map<string, string | undefined>();
  const knownPrompt = (shape: string, form: CallForm): string | undefined => {
    const key = shape + Object.values(form).join();
    if (!known.has(key)) known.set(key, promptOf(names, shape, form));
    return known.get(key);
  };
  const takes: FitSettings['takes'] = (shape, form, unlike) => {
    const prompt = knownPrompt(shape, form);
    return prompt !== undefined && (unlike === undefined || knownPrompt(unlike, form) !== prompt);
  };
  return { settings: { ...options, takes }, names };
}

/** Ways to show tools to a template. Most read `tools`, and test whether there are any. */
const toolNames = (today: () => string): readonly ToolNames[] => [
  (tools) => (tools === undefined ? {} : { tools }),
  // Command R+ needs a description of each tool and of each parameter.
  (tools = []) => ({ tools: tools.map(completeTool) }),
  // Firefunction's.
  (tools = []) => ({ functions: writeExactJson(tools), datetime: today() }),
];

const probedTool = {
  type: 'function',
  function: {
    name: probedFunction,
    description: 'Finds.',
    parameters: { type: 'object', properties: { place: { type: 'string' } }, required: ['place'] },
  },
};
