import type { FieldReader } from '../../../base/field-reader.ts';
import type { ExtraText } from '../../generation/fill-in-middle.ts';
import type { ParsedCompletion, ParseLimits } from '../../generation/request.ts';
import { bodyReader } from '../../http/body-reader.ts';
import { readCompletion } from '../openai/parse.ts';

/** Fields without effect that no other endpoint of ours knows. */
const withoutEffect = ['t_max_prompt_ms', 'response_fields', 'return_tokens'];

/** A request of llama-server's `/infill`: a text with a gap. What is not here is as in completions. */
export function readInfill(body: unknown, limits: ParseLimits): ParsedCompletion {
  const reader = bodyReader(body, limits);
  const prefix = reader.required('input_prefix', reader.string('input_prefix'), 'the text before the gap');
  const suffix = reader.required('input_suffix', reader.string('input_suffix'), 'the text after the gap');
  // The line of the cursor, up to the cursor.
  const prompt = reader.string('prompt') ?? '';
  const extra = reader.objects('input_extra', readExtra) ?? [];
  const [own, older] = ['n_predict', 'max_tokens'].map((name) => reader.integer(name, { min: -2 }));
  const asked = own ?? older;
  const newer = reader.integer('max_completion_tokens', { min: 1 });
  reader.refuse('n', (value) => value === 1);
  const ignored = reader.ignore(withoutEffect);
  const completion = readCompletion(reader, limits, {
    prompts: [prefix + prompt],
    // Negative: as many as there is room for. 0: no text; the prompt is computed and cached.
    maxTokens: asked === 0 ? 0 : (newer ?? (asked === undefined || asked < 0 ? undefined : asked)),
    repetitionPenalty: reader.number('repeat_penalty', { above: 0 }),
  });
  // In completions it has no effect.
  const others = completion.ignored.filter((name) => name !== 'repeat_penalty');
  return { ...completion, suffix, extra, suffixField: 'input_suffix', ignored: [...others, ...ignored] };
}

function readExtra(chunk: FieldReader): ExtraText {
  const text = chunk.required('text', chunk.string('text'), 'a text');
  const name = chunk.string('filename') ?? 'tmp';
  chunk.ignore(['time']);
  chunk.finish();
  return { name, text };
}
