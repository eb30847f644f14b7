/** llama.h's structs that are passed by value, field by field as in the pinned version. */
import koffi, { type TypeObject } from 'koffi';

/** `struct llama_batch` of llama.h. */
export function llamaBatch(pointer: string): TypeObject {
  return koffi.struct({
    n_tokens: 'int32_t',
    token: pointer,
    embd: pointer,
    pos: pointer,
    n_seq_id: pointer,
    seq_id: pointer,
    logits: pointer,
  });
}

/** `struct llama_model_params` of llama.h. */
export function llamaModelParams(pointer: string): TypeObject {
  return koffi.struct({
    devices: pointer,
    tensor_buft_overrides: pointer,
    n_gpu_layers: 'int32_t',
    split_mode: 'int32_t',
    load_mode: 'int32_t',
    lazy_mode: 'int32_t',
    main_gpu: 'int32_t',
    tensor_split: pointer,
    progress_callback: pointer,
    progress_callback_user_data: pointer,
    kv_overrides: pointer,
    vocab_only: 'bool',
    check_tensors: 'bool',
    use_extra_bufts: 'bool',
    no_host: 'bool',
    no_alloc: 'bool',
    load_mtp: 'bool',
  });
}

/** `struct llama_context_params` of llama.h. */
export function llamaContextParams(pointer: string): TypeObject {
  return koffi.struct({
    n_ctx: 'uint32_t',
    n_batch: 'uint32_t',
    n_ubatch: 'uint32_t',
    n_seq_max: 'uint32_t',
    n_rs_seq: 'uint32_t',
    n_outputs_max: 'uint32_t',
    n_outputs_max_per_seq: 'uint32_t',
    n_threads: 'int32_t',
    n_threads_batch: 'int32_t',
    ctx_type: 'int32_t',
    rope_scaling_type: 'int32_t',
    pooling_type: 'int32_t',
    attention_type: 'int32_t',
    flash_attn_type: 'int32_t',
    rope_freq_base: 'float',
    rope_freq_scale: 'float',
    yarn_ext_factor: 'float',
    yarn_attn_factor: 'float',
    yarn_beta_fast: 'float',
    yarn_beta_slow: 'float',
    yarn_orig_ctx: 'uint32_t',
    defrag_thold: 'float',
    cb_eval: pointer,
    cb_eval_user_data: pointer,
    type_k: 'int32_t',
    type_v: 'int32_t',
    abort_callback: pointer,
    abort_callback_data: pointer,
    embeddings: 'bool',
    offload_kqv: 'bool',
    no_perf: 'bool',
    op_offload: 'bool',
    swa_full: 'bool',
    kv_unified: 'bool',
    samplers: pointer,
    n_samplers: 'size_t',
    ctx_other: pointer,
  });
}
