import { byName } from '../../../base/by-name.ts';
import type { FieldReader } from '../../../base/field-reader.ts';
import { isJsonObject } from '../../../base/json.ts';

/** Fields of OpenAI and vLLM that do not change the text here. */
export const harmlessFields: readonly string[] = [
  ...['user', 'metadata', 'store', 'service_tier', 'safety_identifier', 'request_id', 'session_id'],
  ...['prompt_cache_key', 'prompt_cache_retention', 'prompt_cache_options', 'spaces_between_special_tokens'],
  ...['return_mm_kwargs', 'mm_processor_kwargs', 'stream_interval'],
];

/** Fields that would change the output and are not supported. */
const refusedFields: readonly string[] = [
  ...['use_beam_search', 'allowed_token_ids', 'logprob_token_ids', 'bad_words'],
  ...['truncate_prompt_tokens', 'truncation_side', 'repetition_detection', 'vllm_xargs', 'ec_transfer_params'],
  ...['watermarking', 'return_token_offsets', 'return_tokens_as_token_ids', 'logits_processors'],
];

/** Their values that ask for nothing are not empty. */
const neutralValues: Readonly<Record<string, unknown>> = byName({
  length_penalty: 1,
  thinking_token_budget: -1,
  routed_experts_prompt_start: 0,
});

export function refuseUnsupported(reader: FieldReader): void {
  for (const name of refusedFields) reader.refuse(name, asksForNothing);
  for (const [name, neutral] of Object.entries(neutralValues)) reader.refuse(name, (value) => value === neutral);
}

/** Fields of chats that would change the output and are not supported. */
const chatRefusedFields: readonly string[] = [
  ...['functions', 'audio', 'web_search_options', 'moderation', 'documents', 'echo'],
  'return_prompt_text',
];

export function refuseUnsupportedInChats(reader: FieldReader): void {
  for (const name of chatRefusedFields) reader.refuse(name, asksForNothing);
  reader.refuse('function_call', (value) => value === 'none' || value === 'auto');
  reader.refuse('modalities', (value) => Array.isArray(value) && value.length === 1 && value[0] === 'text');
  reader.refuse('include_reasoning', (value) => value === true);
}

/** Only OpenAI's models know it. Returns the name if the value asks for a change. */
export function readVerbosity(reader: FieldReader): string[] {
  const verbosity = reader.choice('verbosity', ['low', 'medium', 'high']);
  return verbosity === undefined || verbosity === 'medium' ? [] : ['verbosity'];
}

/** `null` counts as absent before this. */
export function asksForNothing(value: unknown): boolean {
  if (Array.isArray(value)) return value.length === 0;
  return value === false || value === '' || (isJsonObject(value) && Object.keys(value).length === 0);
}
