/** The code that the text thread runs. See `text-thread.ts`. */
import { serveCalls } from '../base/call-thread.ts';
import { bindVocabulary } from '../ggml/ffi.ts';
import { TextEncoding } from './encode-text.ts';
import type { EncodeJob } from './text-thread.ts';

const encodings = new Map<string, TextEncoding>();

serveCalls(() => ({ library, vocab, text, addSpecial, parseSpecial }: EncodeJob): Int32Array => {
  let encoding = encodings.get(library);
  if (encoding === undefined) {
    encoding = new TextEncoding(bindVocabulary(library));
    encodings.set(library, encoding);
  }
  return encoding.encode(vocab, text, addSpecial, parseSpecial);
});
