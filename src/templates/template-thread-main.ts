/** The code that the template thread runs. See `template-thread.ts`. */
import { serveCalls } from '../base/call-thread.ts';
import { KvasirError } from '../base/errors.ts';
import { readExactJson } from '../base/exact-json.ts';
import { chatTemplateBroken, chatTemplateFailed, chatTemplateInvalid } from '../tokenizer/errors.ts';
import { type FittedTemplate, fittedTemplate } from './fitted-template.ts';
import type { TemplateAnswer, TemplateInput, TemplateJob } from './template-thread.ts';

/** The last one that was compiled: an engine has one template. */
let compiled: { readonly key: string; readonly template: FittedTemplate } | undefined;

serveCalls(() => (job: TemplateJob): TemplateAnswer => {
  try {
    const template = templateOf(job);
    if (job.kind === 'check') return { text: '', changes: [] };
    const { messages, options } = readExactJson(job.input, noLimits) as unknown as TemplateInput;
    return template.render(messages, options);
  } catch (error) {
    if (!(error instanceof KvasirError)) throw error;
    const reason = String(error.fields.reason);
    if (error.code === chatTemplateInvalid.definition.code) return { invalid: reason };
    if (error.code === chatTemplateFailed.definition.code) return { refused: reason };
    if (error.code === chatTemplateBroken.definition.code) return { broken: reason };
    throw error;
  }
});

/** The input was within the limits of its reader, or comes from the program itself. */
const noLimits = { levels: 1000, fieldNames: Infinity, objects: Infinity, strings: Infinity };

function templateOf({ source, bosToken, eosToken, toolTemplate }: TemplateJob): FittedTemplate {
  const key = JSON.stringify([source, bosToken, eosToken, toolTemplate]);
  if (compiled?.key === key) return compiled.template;
  compiled = undefined;
  const template = fittedTemplate(source, { bosToken, eosToken, toolTemplate });
  compiled = { key, template };
  return template;
}
