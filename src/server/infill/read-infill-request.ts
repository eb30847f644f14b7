import type { FieldReader } from '../../base/field-reader.ts';
import { withoutUndefined } from '../../base/field-reader.ts';
import { type BodyOptions, bodyReader } from '../body-reader.ts';
import type { ExtraText } from '../fill-in-middle.ts';

/** A request of llama-server's `/infill`: a text with a gap, and a body for `parseCompletion` with all else. */
export interface InfillRequest {
  readonly body: Readonly<Record<string, unknown>>;
  readonly suffix: string;
  readonly extra: readonly ExtraText[];
  /** The request asks for no text: its prompt is computed and cached. */
  readonly onlyPrompt: boolean;
  readonly ignored: readonly string[];
}

/** Fields of llama-server that have another name or form in completions. */
const ownFields = [
  'input_prefix',
  'input_suffix',
  'input_extra',
  'prompt',
  'n_predict',
  'max_tokens',
  'repeat_penalty',
];
/** Those without effect that no other endpoint of ours knows. */
const withoutEffect = ['t_max_prompt_ms', 'response_fields', 'return_tokens'];

export function readInfill(body: unknown, options?: BodyOptions): InfillRequest {
  const reader = bodyReader(body, options);
  const prefix = reader.required('input_prefix', reader.string('input_prefix'), 'the text before the gap');
  const suffix = reader.required('input_suffix', reader.string('input_suffix'), 'the text after the gap');
  // The line of the cursor, up to the cursor.
  const prompt = reader.string('prompt') ?? '';
  const extra = reader.objects('input_extra', readExtra) ?? [];
  const asked = reader.integer('n_predict', { min: -2 }) ?? reader.integer('max_tokens', { min: -2 });
  reader.refuse('n', (value) => value === 1);
  const others = Object.entries(body as object).filter(([name]) => ![...ownFields, ...withoutEffect].includes(name));
  return {
    body: {
      ...Object.fromEntries(others),
      prompt: prefix + prompt,
      // Negative: as many as there is room for.
      ...(asked === undefined || asked < 0 ? {} : { max_tokens: Math.max(asked, 1) }),
      ...withoutUndefined({ repetition_penalty: reader.number('repeat_penalty', { above: 0 }) }),
    },
    suffix,
    extra,
    onlyPrompt: asked === 0,
    ignored: reader.ignore(withoutEffect),
  };
}

function readExtra(chunk: FieldReader): ExtraText {
  const text = chunk.required('text', chunk.string('text'), 'a text');
  const name = chunk.string('filename') ?? 'tmp';
  chunk.ignore(['time']);
  chunk.finish();
  return { name, text };
}
