/**
 * Fields of other servers that Kvasir has no use for. They are ignored, and the answer says so in a `warning` header. Fields that
 * would restrict the output, like `grammar`, are refused instead: a text that breaks them would be wrong.
 */
const ollama = ['keep_alive', 'options', 'think', 'raw', 'context'];
const llamaCpp = [
  ...['cache_prompt', 'id_slot', 'n_keep', 'n_discard', 'n_indent', 'n_probs', 'min_keep', 't_max_predict_ms'],
  ...['samplers', 'typical_p', 'tfs_z', 'top_n_sigma', 'repeat_penalty', 'repeat_last_n', 'penalize_nl'],
  ...['mirostat', 'mirostat_tau', 'mirostat_eta', 'dynatemp_range', 'dynatemp_exponent'],
  ...['xtc_probability', 'xtc_threshold', 'dry_multiplier', 'dry_base', 'dry_allowed_length', 'dry_penalty_last_n'],
  ...['dry_sequence_breakers', 'timings_per_token', 'return_progress', 'post_sampling_probs', 'reasoning_format'],
];
/** OpenAI's: a text that the answer may be like, for speed. */
const drafts = ['prediction'];

const others = ['top_a', 'do_sample', 'num_beams', 'early_stopping', 'typical', 'watermark', 'no_repeat_ngram_size'];

/** llm-d's: a decode server always computes what it cannot load. */
const routers = ['cache_hit_threshold'];

export const foreignFields: readonly string[] = [...ollama, ...llamaCpp, ...drafts, ...others, ...routers];
