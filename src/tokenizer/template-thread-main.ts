/** The code that the template thread runs. See `template-thread.ts`. */
import { serveCalls } from '../base/call-thread.ts';
import { KvasirError } from '../base/errors.ts';
import { type ChatTemplate, compileChatTemplate, type TemplateMessage } from './chat-template.ts';
import { chatTemplateFailed, chatTemplateInvalid } from './errors.ts';
import type { TemplateAnswer, TemplateJob } from './template-thread.ts';

/** The last one that was compiled: an engine has one template. */
let compiled: { readonly key: string; readonly template: ChatTemplate } | undefined;

serveCalls(() => (job: TemplateJob): TemplateAnswer => {
  try {
    const template = templateOf(job);
    if (job.kind === 'check') return { text: '' };
    return { text: template.render(job.messages as readonly TemplateMessage[], job.options) };
  } catch (error) {
    if (!(error instanceof KvasirError)) throw error;
    const reason = String(error.fields.reason);
    if (error.code === chatTemplateInvalid.definition.code) return { invalid: reason };
    if (error.code === chatTemplateFailed.definition.code) return { refused: reason };
    throw error;
  }
});

function templateOf({ source, bosToken, eosToken }: TemplateJob): ChatTemplate {
  const key = JSON.stringify([source, bosToken, eosToken]);
  if (compiled?.key === key) return compiled.template;
  compiled = undefined;
  const template = compileChatTemplate(source, { bosToken, eosToken });
  compiled = { key, template };
  return template;
}
