/**
 * Every native symbol, in one table: its library, its return type and its parameter types. The TypeScript signatures
 * are derived from the table, so a new pinned version needs one comparison with ggml's headers.
 *
 * Native pointers are plain numbers (user-space addresses are below 2^53), branded by what they point to.
 */
import type { Brand } from '../base/brand.ts';

export type Pointer<Kind extends string> = Brand<number, Kind>;
export type ContextPtr = Pointer<'ggml_context'>;
export type TensorPtr = Pointer<'ggml_tensor'>;
export type GraphPtr = Pointer<'ggml_cgraph'>;
export type AllocatorPtr = Pointer<'ggml_gallocr'>;
export type BackendPtr = Pointer<'ggml_backend'>;
export type BufferPtr = Pointer<'ggml_backend_buffer'>;
export type BufferTypePtr = Pointer<'ggml_backend_buffer_type'>;
export type DevicePtr = Pointer<'ggml_backend_device'>;
export type RegistryPtr = Pointer<'ggml_backend_reg'>;
export type SchedPtr = Pointer<'ggml_backend_sched'>;
export type GgufPtr = Pointer<'gguf_context'>;
export type ModelPtr = Pointer<'llama_model'>;
export type VocabPtr = Pointer<'llama_vocab'>;
export type LlamaPtr = Pointer<'llama_context'>;
export type MemoryPtr = Pointer<'llama_memory'>;
export type RawPtr = Pointer<'void'>;

/** A C null pointer of any kind. */
export const nullPtr = <P extends Pointer<string>>(): P => 0 as P;

interface InitParams {
  mem_size: number;
  mem_buffer: number;
  no_alloc: boolean;
}
interface GgufInitParams {
  no_alloc: boolean;
  ctx: number;
}
export interface LlamaModelParams {
  n_gpu_layers: number;
  load_mode: number;
  vocab_only: boolean;
  check_tensors: boolean;
  use_extra_bufts: boolean;
  [field: string]: number | boolean;
}
export interface LlamaContextParams {
  n_ctx: number;
  n_batch: number;
  n_ubatch: number;
  n_seq_max: number;
  n_threads: number;
  n_threads_batch: number;
  flash_attn_type: number;
  type_k: number;
  type_v: number;
  no_perf: boolean;
  kv_unified: boolean;
  [field: string]: number | boolean;
}
/** The arrays are native memory of `llama_batch_init`; write them through `koffi.view`. */
export interface LlamaBatch {
  n_tokens: number;
  token: number;
  embd: number;
  pos: number;
  n_seq_id: number;
  seq_id: number;
  logits: number;
}

/** The TypeScript types of the names in the table. */
export interface Kinds {
  void: undefined;
  bool: boolean;
  i32: number;
  u32: number;
  i64: number;
  size: number;
  f32: number;
  f64: number;
  /** A NUL-terminated UTF-8 string; copied on return. */
  str: string;
  /** JavaScript memory that C reads or writes during the call. */
  data: ArrayBufferView | ArrayBuffer | null;
  /** An array of C strings. */
  strs: readonly string[];
  raw: RawPtr;
  ctx: ContextPtr;
  tensor: TensorPtr;
  graph: GraphPtr;
  galloc: AllocatorPtr;
  backend: BackendPtr;
  buffer: BufferPtr;
  buft: BufferTypePtr;
  device: DevicePtr;
  registry: RegistryPtr;
  sched: SchedPtr;
  gguf: GgufPtr;
  model: ModelPtr;
  vocab: VocabPtr;
  llama: LlamaPtr;
  memory: MemoryPtr;
  init_params: InitParams;
  gguf_init_params: GgufInitParams;
  model_params: LlamaModelParams;
  context_params: LlamaContextParams;
  batch: LlamaBatch;
}
export type Kind = keyof Kinds;
type Library = 'base' | 'ggml' | 'llama';
export type Signature = readonly [library: Library, returns: Kind, ...takes: Kind[]];

export const table = {
  ggml_version: ['base', 'str'],
  ggml_commit: ['base', 'str'],
  ggml_log_set: ['base', 'void', 'raw', 'raw'],
  ggml_init: ['base', 'ctx', 'init_params'],
  ggml_reset: ['base', 'void', 'ctx'],
  ggml_free: ['base', 'void', 'ctx'],
  ggml_tensor_overhead: ['base', 'size'],
  ggml_graph_overhead_custom: ['base', 'size', 'size', 'bool'],
  ggml_type_name: ['base', 'str', 'i32'],
  ggml_type_size: ['base', 'size', 'i32'],
  ggml_blck_size: ['base', 'i64', 'i32'],
  ggml_row_size: ['base', 'size', 'i32', 'i64'],
  ggml_nbytes: ['base', 'size', 'tensor'],
  ggml_quantize_chunk: ['base', 'size', 'i32', 'data', 'data', 'i64', 'i64', 'i64', 'data'],
  ggml_fp32_to_fp16_row: ['base', 'void', 'data', 'data', 'i64'],
  ggml_fp16_to_fp32_row: ['base', 'void', 'data', 'data', 'i64'],

  ggml_new_tensor_1d: ['base', 'tensor', 'ctx', 'i32', 'i64'],
  ggml_new_tensor_2d: ['base', 'tensor', 'ctx', 'i32', 'i64', 'i64'],
  ggml_new_tensor_3d: ['base', 'tensor', 'ctx', 'i32', 'i64', 'i64', 'i64'],
  ggml_new_tensor_4d: ['base', 'tensor', 'ctx', 'i32', 'i64', 'i64', 'i64', 'i64'],
  ggml_set_name: ['base', 'tensor', 'tensor', 'str'],
  ggml_set_input: ['base', 'void', 'tensor'],
  ggml_set_output: ['base', 'void', 'tensor'],
  ggml_view_1d: ['base', 'tensor', 'ctx', 'tensor', 'i64', 'size'],
  ggml_view_2d: ['base', 'tensor', 'ctx', 'tensor', 'i64', 'i64', 'size', 'size'],
  ggml_view_3d: ['base', 'tensor', 'ctx', 'tensor', 'i64', 'i64', 'i64', 'size', 'size', 'size'],
  ggml_reshape_2d: ['base', 'tensor', 'ctx', 'tensor', 'i64', 'i64'],
  ggml_reshape_3d: ['base', 'tensor', 'ctx', 'tensor', 'i64', 'i64', 'i64'],
  ggml_permute: ['base', 'tensor', 'ctx', 'tensor', 'i32', 'i32', 'i32', 'i32'],
  ggml_cont: ['base', 'tensor', 'ctx', 'tensor'],
  ggml_cpy: ['base', 'tensor', 'ctx', 'tensor', 'tensor'],
  ggml_cast: ['base', 'tensor', 'ctx', 'tensor', 'i32'],
  ggml_get_rows: ['base', 'tensor', 'ctx', 'tensor', 'tensor'],
  ggml_set_rows: ['base', 'tensor', 'ctx', 'tensor', 'tensor', 'tensor'],
  ggml_add: ['base', 'tensor', 'ctx', 'tensor', 'tensor'],
  ggml_mul: ['base', 'tensor', 'ctx', 'tensor', 'tensor'],
  ggml_div: ['base', 'tensor', 'ctx', 'tensor', 'tensor'],
  ggml_add_id: ['base', 'tensor', 'ctx', 'tensor', 'tensor', 'tensor'],
  ggml_mul_mat: ['base', 'tensor', 'ctx', 'tensor', 'tensor'],
  ggml_mul_mat_id: ['base', 'tensor', 'ctx', 'tensor', 'tensor', 'tensor'],
  ggml_rms_norm: ['base', 'tensor', 'ctx', 'tensor', 'f32'],
  ggml_norm: ['base', 'tensor', 'ctx', 'tensor', 'f32'],
  ggml_gelu: ['base', 'tensor', 'ctx', 'tensor'],
  ggml_l2_norm: ['base', 'tensor', 'ctx', 'tensor', 'f32'],
  ggml_sum_rows: ['base', 'tensor', 'ctx', 'tensor'],
  ggml_clamp: ['base', 'tensor', 'ctx', 'tensor', 'f32', 'f32'],
  ggml_soft_max: ['base', 'tensor', 'ctx', 'tensor'],
  ggml_argsort_top_k: ['base', 'tensor', 'ctx', 'tensor', 'i32'],
  ggml_scale: ['base', 'tensor', 'ctx', 'tensor', 'f32'],
  ggml_silu: ['base', 'tensor', 'ctx', 'tensor'],
  ggml_relu: ['base', 'tensor', 'ctx', 'tensor'],
  ggml_sqr: ['base', 'tensor', 'ctx', 'tensor'],
  ggml_sigmoid: ['base', 'tensor', 'ctx', 'tensor'],
  ggml_softplus: ['base', 'tensor', 'ctx', 'tensor'],
  ggml_fill: ['base', 'tensor', 'ctx', 'tensor', 'f32'],
  ggml_concat: ['base', 'tensor', 'ctx', 'tensor', 'tensor', 'i32'],
  ggml_transpose: ['base', 'tensor', 'ctx', 'tensor'],
  ggml_ssm_conv: ['base', 'tensor', 'ctx', 'tensor', 'tensor'],
  ggml_ssm_scan: ['base', 'tensor', 'ctx', 'tensor', 'tensor', 'tensor', 'tensor', 'tensor', 'tensor', 'tensor', 'i64'],
  ggml_gated_delta_net: ['base', 'tensor', 'ctx', 'tensor', 'tensor', 'tensor', 'tensor', 'tensor', 'tensor', 'i64'],
  ggml_tanh: ['base', 'tensor', 'ctx', 'tensor'],
  ggml_swiglu_split: ['base', 'tensor', 'ctx', 'tensor', 'tensor'],
  ggml_swiglu_oai: ['base', 'tensor', 'ctx', 'tensor', 'tensor', 'f32', 'f32'],
  ggml_geglu_split: ['base', 'tensor', 'ctx', 'tensor', 'tensor'],
  ggml_rope_ext: [
    'base',
    'tensor',
    'ctx',
    'tensor',
    'tensor',
    'tensor',
    'i32',
    'i32',
    'i32',
    'f32',
    'f32',
    'f32',
    'f32',
    'f32',
    'f32',
  ],
  ggml_custom_4d: ['base', 'tensor', 'ctx', 'i32', 'i64', 'i64', 'i64', 'i64', 'data', 'i32', 'raw', 'i32', 'raw'],
  ggml_flash_attn_ext: ['base', 'tensor', 'ctx', 'tensor', 'tensor', 'tensor', 'tensor', 'f32', 'f32', 'f32'],
  ggml_flash_attn_ext_add_sinks: ['base', 'void', 'tensor', 'tensor'],

  ggml_new_graph_custom: ['base', 'graph', 'ctx', 'size', 'bool'],
  ggml_build_forward_expand: ['base', 'void', 'graph', 'tensor'],
  ggml_graph_n_nodes: ['base', 'i32', 'graph'],
  ggml_graph_node: ['base', 'tensor', 'graph', 'i32'],
  ggml_gallocr_new: ['base', 'galloc', 'buft'],
  ggml_gallocr_free: ['base', 'void', 'galloc'],
  ggml_gallocr_alloc_graph: ['base', 'bool', 'galloc', 'graph'],
  ggml_gallocr_get_buffer_size: ['base', 'size', 'galloc', 'i32'],

  ggml_backend_load: ['ggml', 'registry', 'str'],
  ggml_backend_load_all_from_path: ['ggml', 'void', 'str'],
  ggml_backend_dev_count: ['ggml', 'size'],
  ggml_backend_dev_get: ['ggml', 'device', 'size'],
  ggml_backend_dev_name: ['base', 'str', 'device'],
  ggml_backend_dev_description: ['base', 'str', 'device'],
  ggml_backend_dev_type: ['base', 'i32', 'device'],
  ggml_backend_dev_memory: ['base', 'void', 'device', 'data', 'data'],
  ggml_backend_dev_init: ['base', 'backend', 'device', 'raw'],
  ggml_backend_dev_backend_reg: ['base', 'registry', 'device'],
  ggml_backend_dev_buffer_type: ['base', 'buft', 'device'],
  ggml_backend_dev_supports_op: ['base', 'bool', 'device', 'tensor'],
  ggml_backend_reg_get_proc_address: ['base', 'raw', 'registry', 'str'],
  ggml_backend_free: ['base', 'void', 'backend'],
  ggml_backend_name: ['base', 'str', 'backend'],
  ggml_backend_synchronize: ['base', 'void', 'backend'],
  ggml_backend_graph_compute: ['base', 'i32', 'backend', 'graph'],
  ggml_backend_get_default_buffer_type: ['base', 'buft', 'backend'],
  ggml_backend_buft_name: ['base', 'str', 'buft'],
  ggml_backend_buft_get_max_size: ['base', 'size', 'buft'],
  ggml_backend_buft_is_host: ['base', 'bool', 'buft'],
  ggml_backend_buft_alloc_buffer: ['base', 'buffer', 'buft', 'size'],
  ggml_backend_alloc_ctx_tensors_from_buft: ['base', 'buffer', 'ctx', 'buft'],
  ggml_backend_cpu_buffer_from_ptr: ['base', 'buffer', 'raw', 'size'],
  ggml_backend_tensor_alloc: ['base', 'i32', 'buffer', 'tensor', 'raw'],
  ggml_backend_buffer_free: ['base', 'void', 'buffer'],
  ggml_backend_buffer_get_base: ['base', 'raw', 'buffer'],
  ggml_backend_buffer_get_size: ['base', 'size', 'buffer'],
  ggml_backend_buffer_set_usage: ['base', 'void', 'buffer', 'i32'],
  ggml_backend_buffer_clear: ['base', 'void', 'buffer', 'i32'],
  ggml_backend_tensor_set: ['base', 'void', 'tensor', 'data', 'size', 'size'],
  ggml_backend_tensor_get: ['base', 'void', 'tensor', 'data', 'size', 'size'],
  ggml_backend_tensor_memset: ['base', 'void', 'tensor', 'i32', 'size', 'size'],
  ggml_backend_sched_new: ['base', 'sched', 'data', 'data', 'i32', 'size', 'bool', 'bool'],
  ggml_backend_sched_free: ['base', 'void', 'sched'],
  ggml_backend_sched_reset: ['base', 'void', 'sched'],
  ggml_backend_sched_set_tensor_backend: ['base', 'void', 'sched', 'tensor', 'backend'],
  ggml_backend_sched_alloc_graph: ['base', 'bool', 'sched', 'graph'],
  ggml_backend_sched_graph_compute: ['base', 'i32', 'sched', 'graph'],

  gguf_init_empty: ['base', 'gguf'],
  gguf_free: ['base', 'void', 'gguf'],
  gguf_set_val_u32: ['base', 'void', 'gguf', 'str', 'u32'],
  gguf_set_val_i32: ['base', 'void', 'gguf', 'str', 'i32'],
  gguf_set_val_f32: ['base', 'void', 'gguf', 'str', 'f32'],
  gguf_set_val_bool: ['base', 'void', 'gguf', 'str', 'bool'],
  gguf_set_val_str: ['base', 'void', 'gguf', 'str', 'str'],
  gguf_set_arr_data: ['base', 'void', 'gguf', 'str', 'i32', 'data', 'size'],
  gguf_set_arr_str: ['base', 'void', 'gguf', 'str', 'strs', 'size'],
  gguf_add_tensor: ['base', 'void', 'gguf', 'tensor'],
  gguf_set_tensor_data: ['base', 'void', 'gguf', 'str', 'data'],
  gguf_write_to_file: ['base', 'bool', 'gguf', 'str', 'bool'],

  llama_log_set: ['llama', 'void', 'raw', 'raw'],
  llama_model_default_params: ['llama', 'model_params'],
  llama_context_default_params: ['llama', 'context_params'],
  llama_model_load_from_file: ['llama', 'model', 'str', 'model_params'],
  llama_model_free: ['llama', 'void', 'model'],
  llama_model_get_vocab: ['llama', 'vocab', 'model'],
  llama_init_from_model: ['llama', 'llama', 'model', 'context_params'],
  llama_free: ['llama', 'void', 'llama'],
  llama_adapter_lora_init: ['llama', 'raw', 'model', 'str'],
  llama_set_adapters_lora: ['llama', 'i32', 'llama', 'data', 'size', 'data'],
  llama_get_memory: ['llama', 'memory', 'llama'],
  llama_memory_clear: ['llama', 'void', 'memory', 'bool'],
  llama_memory_seq_rm: ['llama', 'bool', 'memory', 'i32', 'i32', 'i32'],
  llama_memory_seq_cp: ['llama', 'void', 'memory', 'i32', 'i32', 'i32', 'i32'],
  llama_model_n_swa: ['llama', 'i32', 'model'],
  llama_model_is_recurrent: ['llama', 'bool', 'model'],
  llama_model_is_hybrid: ['llama', 'bool', 'model'],
  llama_state_seq_get_size: ['llama', 'size', 'llama', 'i32'],
  llama_state_seq_get_data: ['llama', 'size', 'llama', 'data', 'size', 'i32'],
  llama_state_seq_set_data: ['llama', 'size', 'llama', 'data', 'size', 'i32'],
  llama_batch_init: ['llama', 'batch', 'i32', 'i32', 'i32'],
  llama_batch_free: ['llama', 'void', 'batch'],
  llama_decode: ['llama', 'i32', 'llama', 'batch'],
  llama_synchronize: ['llama', 'void', 'llama'],
  llama_get_embeddings_seq: ['llama', 'raw', 'llama', 'i32'],
  llama_model_n_embd: ['llama', 'i32', 'model'],
  llama_get_logits_ith: ['llama', 'raw', 'llama', 'i32'],
  llama_vocab_n_tokens: ['llama', 'i32', 'vocab'],
  llama_vocab_type: ['llama', 'i32', 'vocab'],
  llama_vocab_bos: ['llama', 'i32', 'vocab'],
  llama_vocab_eos: ['llama', 'i32', 'vocab'],
  llama_vocab_eot: ['llama', 'i32', 'vocab'],
  llama_vocab_fim_pre: ['llama', 'i32', 'vocab'],
  llama_vocab_fim_suf: ['llama', 'i32', 'vocab'],
  llama_vocab_fim_mid: ['llama', 'i32', 'vocab'],
  llama_vocab_fim_rep: ['llama', 'i32', 'vocab'],
  llama_vocab_fim_sep: ['llama', 'i32', 'vocab'],
  llama_vocab_get_add_bos: ['llama', 'bool', 'vocab'],
  llama_vocab_sep: ['llama', 'i32', 'vocab'],
  llama_vocab_get_add_sep: ['llama', 'bool', 'vocab'],
  llama_vocab_get_add_eos: ['llama', 'bool', 'vocab'],
  llama_vocab_get_attr: ['llama', 'i32', 'vocab', 'i32'],
  llama_vocab_get_text: ['llama', 'str', 'vocab', 'i32'],
  llama_vocab_is_eog: ['llama', 'bool', 'vocab', 'i32'],
  llama_vocab_is_control: ['llama', 'bool', 'vocab', 'i32'],
  llama_tokenize: ['llama', 'i32', 'vocab', 'data', 'i32', 'data', 'i32', 'bool', 'bool'],
  llama_detokenize: ['llama', 'i32', 'vocab', 'data', 'i32', 'data', 'i32', 'bool', 'bool'],
  llama_token_to_piece: ['llama', 'i32', 'vocab', 'i32', 'data', 'i32', 'i32', 'bool'],
} as const satisfies Readonly<Record<string, Signature>>;

type Table = typeof table;
export type Takes<K extends readonly Kind[]> = { [I in keyof K]: Kinds[K[I]] };
type Native<S> = S extends readonly [Library, infer R extends Kind, ...infer T extends readonly Kind[]]
  ? (...args: Takes<T>) => Kinds[R]
  : never;

/** The C functions, typed. */
export type Functions = { readonly [Name in keyof Table]: Native<Table[Name]> };
