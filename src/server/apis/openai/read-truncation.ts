import type { FieldReader } from '../../../base/field-reader.ts';
import { withoutUndefined } from '../../../base/field-reader.ts';
import type { AsyncEngine } from '../../../engine/contract.ts';
import type { Truncation } from '../../../engine/truncation.ts';

/** vLLM's fields: -1 cuts at the longest text that the model takes. Undefined: texts that are too long are errors. */
export function readTruncation(reader: FieldReader, { model }: AsyncEngine): Truncation | undefined {
  const asked = reader.integer('truncate_prompt_tokens', { min: -1, max: model.maxModelLen });
  const side = reader.choice('truncation_side', ['left', 'right']);
  if (asked === undefined) return undefined;
  if (asked === 0) throw reader.invalid('truncate_prompt_tokens', '-1 or a number of tokens');
  return { tokensMax: asked === -1 ? model.maxModelLen : asked, ...withoutUndefined({ side }) };
}
