/** The code that the text thread runs. See `text-thread.ts`. */
import { serveCalls } from '../base/call-thread.ts';
import { KvasirError } from '../base/errors.ts';
import { bindTokenize } from '../ggml/ffi.ts';
import { type ChatTemplate, compileChatTemplate, type TemplateMessage } from './chat-template.ts';
import { TextEncoding } from './encode-text.ts';
import type { EncodeJob, RenderJob, TextAnswer, TextJob } from './text-thread-messages.ts';

const encodings = new Map<string, TextEncoding>();
const templates = new Map<string, ChatTemplate>();

serveCalls(
  () =>
    (job: TextJob): TextAnswer =>
      job.kind === 'encode' ? { tokens: encode(job) } : render(job),
);

function encode({ library, vocab, text, addSpecial, parseSpecial }: EncodeJob): Int32Array {
  let encoding = encodings.get(library);
  if (encoding === undefined) {
    encoding = new TextEncoding(bindTokenize(library));
    encodings.set(library, encoding);
  }
  return encoding.encode(vocab, text, addSpecial, parseSpecial);
}

function render({ source, bosToken, eosToken, messages, options }: RenderJob): TextAnswer {
  let template = templates.get(source);
  if (template === undefined) {
    template = compileChatTemplate(source, { bosToken, eosToken });
    templates.set(source, template);
  }
  try {
    return { text: template.render(messages as readonly TemplateMessage[], options) };
  } catch (error) {
    if (error instanceof KvasirError) return { templateError: String(error.fields.reason) };
    throw error;
  }
}
