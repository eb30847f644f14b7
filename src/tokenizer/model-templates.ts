import type { GgufMetadata } from '../ggml/gguf-metadata.ts';
import { chatTemplateUnknown } from './errors.ts';

/** The chat templates of a model file by their names. A file without names has the template `default`. */
export type ModelTemplates = ReadonlyMap<string, string>;

export interface ChosenTemplates {
  readonly source: string;
  /** For conversations with tools. */
  readonly toolTemplate?: string;
}

const mainKey = 'tokenizer.chat_template';
const mainName = 'default';
const toolName = 'tool_use';

export function readModelTemplates(metadata: GgufMetadata): ModelTemplates {
  const templates = new Map<string, string>();
  for (const key of metadata.entries.keys()) {
    const name = key === mainKey ? mainName : key.startsWith(`${mainKey}.`) ? key.slice(mainKey.length + 1) : undefined;
    const source = name === undefined ? undefined : metadata.string(key);
    if (name !== undefined && source !== undefined) templates.set(name, source);
  }
  return templates;
}

/** A text of one word is a name, as in transformers. */
export const isTemplateName = (chosen: string): boolean => /^[\w-]+$/.test(chosen);

/**
 * As in transformers: the template `default`, and `tool_use` for conversations with tools; a chosen text or name replaces both.
 * Undefined: there is no template.
 * @throws KvasirError `chatTemplateUnknown`
 */
export function chooseTemplates(templates: ModelTemplates, chosen: string | undefined): ChosenTemplates | undefined {
  if (chosen !== undefined && !isTemplateName(chosen)) return { source: chosen };
  if (chosen !== undefined) {
    const source = templates.get(chosen);
    if (source !== undefined) return { source };
    const names = [...templates.keys()].join(', ');
    throw chatTemplateUnknown({ name: chosen, names: names === '' ? 'none' : names });
  }
  const source = templates.get(mainName);
  if (source === undefined) return undefined;
  const toolTemplate = templates.get(toolName);
  return toolTemplate === undefined ? { source } : { source, toolTemplate };
}
