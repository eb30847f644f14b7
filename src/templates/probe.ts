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
  const shows = (names: ToolNames, shape: string, form?: CallForm): boolean => {
    const conversation = conversationOf(shape);
    const text = render(form === undefined ? conversation : inForm(conversation, form, options.writer), names);
    if (text === undefined || (hasTools && !text.includes(probedFunction))) return false;
    return marksOf(text).join() === marksOf(JSON.stringify(conversation)).join();
  };
  const names = toolNames(options.today).find((one) => shows(one, 'U'));
  if (names === undefined) return undefined;
  const known = new Map<string, boolean>();
  const takes: FitSettings['takes'] = (shape, form) => {
    const key = shape + Object.values(form).join();
    let isTaken = known.get(key);
    if (isTaken === undefined) {
      isTaken = shows(names, shape, form);
      known.set(key, isTaken);
    }
    return isTaken;
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
