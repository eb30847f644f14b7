/**
 * Every native symbol, in one table: its library, its return type and its parameter types. The TypeScript signatures
 * are derived from the table, so a new pinned version needs one comparison with ggml's headers.
 *
 * Native pointers are plain numbers (user-space addresses are below 2^53), branded by what they point to.
 */
import koffi, { type LibraryHandle, type TypeObject } from 'koffi';
import type { Brand } from '../base/brand.ts';
import { nativeSymbolMissing, nativeVersionMismatch } from './errors.ts';
import { llamaBatch, llamaContextParams, llamaModelParams } from './ffi-structs.ts';
import { configureKoffi } from './koffi-config.ts';
import {
  findNativeLibraries,
  GGML_COMMIT,
  GGML_VERSION,
  NATIVE_PACKAGE_VERSION,
  type NativeLibraries,
} from './native-package.ts';

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
interface Kinds {
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
type Kind = keyof Kinds;
type Library = 'base' | 'ggml' | 'llama';
type Signature = readonly [library: Library, returns: Kind, ...takes: Kind[]];

const table = {
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
  ggml_mul_mat: ['base', 'tensor', 'ctx', 'tensor', 'tensor'],
  ggml_rms_norm: ['base', 'tensor', 'ctx', 'tensor', 'f32'],
  ggml_swiglu_split: ['base', 'tensor', 'ctx', 'tensor', 'tensor'],
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

  ggml_new_graph_custom: ['base', 'graph', 'ctx', 'size', 'bool'],
  ggml_build_forward_expand: ['base', 'void', 'graph', 'tensor'],
  ggml_graph_n_nodes: ['base', 'i32', 'graph'],
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
  ggml_backend_buffer_free: ['base', 'void', 'buffer'],
  ggml_backend_buffer_get_base: ['base', 'raw', 'buffer'],
  ggml_backend_buffer_get_size: ['base', 'size', 'buffer'],
  ggml_backend_buffer_set_usage: ['base', 'void', 'buffer', 'i32'],
  ggml_backend_buffer_clear: ['base', 'void', 'buffer', 'i32'],
  ggml_backend_tensor_set: ['base', 'void', 'tensor', 'data', 'size', 'size'],
  ggml_backend_tensor_get: ['base', 'void', 'tensor', 'data', 'size', 'size'],
  ggml_backend_sched_new: ['base', 'sched', 'data', 'data', 'i32', 'size', 'bool', 'bool'],
  ggml_backend_sched_free: ['base', 'void', 'sched'],
  ggml_backend_sched_reset: ['base', 'void', 'sched'],
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
  llama_get_memory: ['llama', 'memory', 'llama'],
  llama_memory_clear: ['llama', 'void', 'memory', 'bool'],
  llama_memory_seq_rm: ['llama', 'bool', 'memory', 'i32', 'i32', 'i32'],
  llama_memory_seq_cp: ['llama', 'void', 'memory', 'i32', 'i32', 'i32', 'i32'],
  llama_batch_init: ['llama', 'batch', 'i32', 'i32', 'i32'],
  llama_batch_free: ['llama', 'void', 'batch'],
  llama_decode: ['llama', 'i32', 'llama', 'batch'],
  llama_synchronize: ['llama', 'void', 'llama'],
  llama_get_logits_ith: ['llama', 'raw', 'llama', 'i32'],
  llama_vocab_n_tokens: ['llama', 'i32', 'vocab'],
  llama_vocab_type: ['llama', 'i32', 'vocab'],
  llama_vocab_bos: ['llama', 'i32', 'vocab'],
  llama_vocab_eos: ['llama', 'i32', 'vocab'],
  llama_vocab_eot: ['llama', 'i32', 'vocab'],
  llama_vocab_get_add_bos: ['llama', 'bool', 'vocab'],
  llama_vocab_get_add_eos: ['llama', 'bool', 'vocab'],
  llama_vocab_get_text: ['llama', 'str', 'vocab', 'i32'],
  llama_vocab_is_eog: ['llama', 'bool', 'vocab', 'i32'],
  llama_vocab_is_control: ['llama', 'bool', 'vocab', 'i32'],
  llama_tokenize: ['llama', 'i32', 'vocab', 'data', 'i32', 'data', 'i32', 'bool', 'bool'],
  llama_detokenize: ['llama', 'i32', 'vocab', 'data', 'i32', 'data', 'i32', 'bool', 'bool'],
  llama_token_to_piece: ['llama', 'i32', 'vocab', 'i32', 'data', 'i32', 'i32', 'bool'],
} as const satisfies Readonly<Record<string, Signature>>;

type Table = typeof table;
type Takes<K extends readonly Kind[]> = { [I in keyof K]: Kinds[K[I]] };
type Native<S> = S extends readonly [Library, infer R extends Kind, ...infer T extends readonly Kind[]]
  ? (...args: Takes<T>) => Kinds[R]
  : never;

/** The C functions, typed. */
export type Functions = { readonly [Name in keyof Table]: Native<Table[Name]> };

export interface NativeApi extends Functions {
  readonly libraries: NativeLibraries;
  /** A C function pointer as a function, typed like a row of the table. */
  functionAt<R extends Kind, T extends readonly Kind[]>(
    pointer: RawPtr,
    returns: R,
    ...takes: T
  ): (...args: Takes<T>) => Kinds[R];
  /**
   * A function of another library, typed like a row of the table. The library stays loaded. Throws if it cannot be
   * loaded.
   */
  functionIn<R extends Kind, T extends readonly Kind[]>(
    path: string,
    name: string,
    returns: R,
    ...takes: T
  ): (...args: Takes<T>) => Kinds[R];
  /** The address of an ArrayBuffer's bytes, valid until the buffer is garbage-collected. */
  addressOf(buffer: ArrayBuffer): number;
  /** Native memory as an ArrayBuffer, without a copy. The caller must not use it after the memory is freed. */
  memoryAt(pointer: number, byteLength: number): ArrayBuffer;
  /** The newest lines that the native libraries logged (warnings and errors), oldest first. */
  recentLog(): readonly string[];
}

let loaded: NativeApi | undefined;

/** Loads the libraries once per process, checks their version, binds every symbol. Throws errors of `errors.ts`. */
export function loadNative(): NativeApi {
  loaded ??= bind(findNativeLibraries());
  return loaded;
}

/**
 * Binds single symbols for another thread of a process that has loaded and checked the libraries. The thread passes
 * memory (`data`) by address. Logs go to the callback of the first thread.
 */
export function bindByAddress(libraries: NativeLibraries): (name: keyof Functions) => (...args: unknown[]) => unknown {
  configureKoffi();
  const types = { ...declareTypes(), data: 'uintptr_t' };
  const bound = new Map<string, (...args: unknown[]) => unknown>();
  return (name) => {
    let call = bound.get(name);
    if (call === undefined) {
      const [library, returns, ...takes]: Signature = table[name];
      const parameters = takes.map((kind) => types[kind]);
      call = libraryAt(libraries[library]).func(name, types[returns], parameters);
      bound.set(name, call);
    }
    return call;
  };
}

/**
 * Binds only `llama_tokenize`, for another thread. That thread must not set the log's callback, which belongs to the
 * thread that called `loadNative`. The function is thread-safe: it only reads the vocabulary, and each call has its own
 * state.
 */
export function bindTokenize(path: string): NativeApi['llama_tokenize'] {
  configureKoffi();
  const [, returns, ...takes] = table.llama_tokenize;
  const types = declareTypes();
  return libraryAt(path).func(
    'llama_tokenize',
    types[returns],
    takes.map((kind) => types[kind]),
  ) as unknown as NativeApi['llama_tokenize'];
}

function bind(libraries: NativeLibraries): NativeApi {
  configureKoffi();
  const opened = {
    base: koffi.load(libraries.base),
    ggml: koffi.load(libraries.ggml),
    llama: koffi.load(libraries.llama),
  };
  checkVersion(opened.base, libraries);
  const types = declareTypes();
  const functions: Record<string, unknown> = {};
  for (const [name, [library, returns, ...takes]] of Object.entries(table) as [string, Signature][]) {
    try {
      functions[name] = opened[library].func(
        name,
        types[returns],
        takes.map((kind) => types[kind]),
      );
    } catch (cause) {
      throw nativeSymbolMissing(
        {
          library: libraries[library],
          symbol: name,
          packageName: libraries.packageName,
          version: NATIVE_PACKAGE_VERSION,
        },
        cause,
      );
    }
  }
  const bound = functions as unknown as Functions;
  const log = captureLog(bound);
  return {
    ...bound,
    libraries,
    functionAt: (pointer, returns, ...takes) =>
      koffi.decode(
        BigInt(pointer),
        koffi.proto(
          types[returns],
          takes.map((kind) => types[kind]),
        ),
      ),
    functionIn: (path, name, returns, ...takes) =>
      libraryAt(path).func(
        name,
        types[returns],
        takes.map((kind) => types[kind]),
      ),
    addressOf: (buffer) => Number(koffi.address(buffer)),
    memoryAt: (pointer, byteLength) => koffi.view(pointer, byteLength),
    recentLog: () => log,
  };
}

/**
 * Other libraries than those of `bind`. koffi unloads a library without references, and pointers into it would dangle.
 */
const otherLibraries = new Map<string, LibraryHandle>();

function libraryAt(path: string): LibraryHandle {
  let library = otherLibraries.get(path);
  if (library === undefined) {
    library = koffi.load(path);
    otherLibraries.set(path, library);
  }
  return library;
}

function checkVersion(base: LibraryHandle, libraries: NativeLibraries): void {
  const found: string = base.func('ggml_version', 'str', [])();
  const foundCommit: string = base.func('ggml_commit', 'str', [])();
  if (found !== GGML_VERSION || foundCommit !== GGML_COMMIT) {
    throw nativeVersionMismatch({
      path: libraries.base,
      found,
      foundCommit,
      expected: GGML_VERSION,
      expectedCommit: GGML_COMMIT,
      packageName: libraries.packageName,
      version: NATIVE_PACKAGE_VERSION,
    });
  }
}

/** Keeps the last lines of the native logs for error messages. They are not printed. */
function captureLog(functions: Functions): string[] {
  const lines: string[] = [];
  const warning = 3;
  const keep = (level: number, text: string): void => {
    if (level < warning) return;
    lines.push(text.trimEnd());
    if (lines.length > 50) lines.shift();
  };
  // Registered until the process exits, because the libraries keep the pointer.
  const callback = koffi.register(
    keep,
    koffi.pointer(koffi.proto('void kvasir_log(int level, str text, uintptr_t user)')),
  );
  // libllama's own setter passes it on to ggml too.
  functions.llama_log_set(Number(callback) as RawPtr, nullPtr());
  return lines;
}

function declareTypes(): Record<Kind, TypeObject | string> {
  const pointer = 'uintptr_t';
  const initParams = koffi.struct({ mem_size: 'size_t', mem_buffer: pointer, no_alloc: 'bool' });
  const ggufInitParams = koffi.struct({ no_alloc: 'bool', ctx: pointer });
  return {
    void: 'void',
    bool: 'bool',
    i32: 'int32_t',
    u32: 'uint32_t',
    i64: 'int64_t',
    size: 'size_t',
    f32: 'float',
    f64: 'double',
    str: 'str',
    data: 'void *',
    strs: 'const char **',
    raw: pointer,
    ctx: pointer,
    tensor: pointer,
    graph: pointer,
    galloc: pointer,
    backend: pointer,
    buffer: pointer,
    buft: pointer,
    device: pointer,
    registry: pointer,
    sched: pointer,
    gguf: pointer,
    model: pointer,
    vocab: pointer,
    llama: pointer,
    memory: pointer,
    init_params: initParams,
    gguf_init_params: ggufInitParams,
    model_params: llamaModelParams(pointer),
    context_params: llamaContextParams(pointer),
    batch: llamaBatch(pointer),
  };
}
