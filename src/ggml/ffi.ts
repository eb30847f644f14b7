/** Loads the native libraries and binds the symbols of `ffi-table.ts`. */
import koffi, { type LibraryHandle, type TypeObject } from 'koffi';
import { configureKoffi } from '../base/koffi-config.ts';
import { nativeSymbolMissing, nativeVersionMismatch } from './errors.ts';
import { llamaBatch, llamaContextParams, llamaModelParams } from './ffi-structs.ts';
import {
  type Functions,
  type Kind,
  type Kinds,
  type ModelPtr,
  type RawPtr,
  type Signature,
  type Takes,
  table,
} from './ffi-table.ts';
import { captureNativeLog } from './native-log.ts';
import { findNativeLibraries, type NativeLibraries, nativeVersions, remedyFor } from './native-package.ts';

export {
  type AllocatorPtr,
  type BackendPtr,
  type BufferPtr,
  type BufferTypePtr,
  type ContextPtr,
  type DevicePtr,
  type Functions,
  type GgufPtr,
  type GraphPtr,
  type LlamaBatch,
  type LlamaContextParams,
  type LlamaModelParams,
  type LlamaPtr,
  type MemoryPtr,
  type ModelPtr,
  nullPtr,
  type Pointer,
  type RawPtr,
  type RegistryPtr,
  type SchedPtr,
  type TensorPtr,
  type VocabPtr,
} from './ffi-table.ts';

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
  /** The same, for calls on libuv's threads. The memory that a call gets must stay until its promise is settled. */
  backgroundFunctionIn<R extends Kind, T extends readonly Kind[]>(
    path: string,
    name: string,
    returns: R,
    ...takes: T
  ): (...args: Takes<T>) => Promise<Kinds[R]>;
  /**
   * The vocabulary of a model file, read on a thread of libuv. 0 if libllama refuses the file. `recentLog` gets no lines until then,
   * because a line from another thread would wait for the event loop.
   */
  loadVocabulary(path: string): Promise<ModelPtr>;
  /** Also on a thread of libuv, because a large vocabulary takes a tenth of a second. */
  freeVocabulary(model: ModelPtr): Promise<void>;
  /** The address of an ArrayBuffer's bytes, valid until the buffer is garbage-collected. */
  addressOf(buffer: ArrayBuffer): number;
  /** Native memory as an ArrayBuffer, without a copy. The caller must not use it after the memory is freed. See `viewBytesMax`. */
  memoryAt(pointer: number, byteLength: number): ArrayBuffer;
  /** The newest lines that the native libraries logged (warnings and errors), oldest first. */
  recentLog(): readonly string[];
}

/** Of larger memory there are several views, because Node 20 has none of more than 4 GiB: the process would end. */
export const viewBytesMax = 2 ** 30;

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
 * Binds only functions that read a vocabulary, for another thread. That thread must not set the log's callback, which belongs to the
 * thread that called `loadNative`. The functions are thread-safe: each call has its own state.
 */
export function bindVocabulary(path: string): VocabularyApi {
  configureKoffi();
  const types = declareTypes();
  const library = libraryAt(path);
  const func = <Name extends keyof VocabularyApi>(name: Name) => {
    const [, returns, ...takes]: Signature = table[name];
    const parameters = takes.map((kind) => types[kind]);
    return library.func(name, types[returns], parameters) as unknown as VocabularyApi[Name];
  };
  return { llama_tokenize: func('llama_tokenize'), llama_vocab_get_text: func('llama_vocab_get_text') };
}

export type VocabularyApi = Pick<Functions, 'llama_tokenize' | 'llama_vocab_get_text'>;

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
        { library: libraries[library], symbol: name, ...remedyFor(libraries.packageName) },
        cause,
      );
    }
  }
  const bound = functions as unknown as Functions;
  const { log, withoutLog } = captureNativeLog(bound, opened.base);
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
    backgroundFunctionIn: (path, name, returns, ...takes) =>
      inBackground(
        libraryAt(path).func(
          name,
          types[returns],
          takes.map((kind) => types[kind]),
        ),
      ),
    async loadVocabulary(path) {
      // An empty list of devices: libllama must not read the list of backends, to which this thread may add some.
      const noDevices = new BigUint64Array(1);
      const devices = Number(koffi.address(noDevices.buffer)) as RawPtr;
      const params = { ...bound.llama_model_default_params(), vocab_only: true, devices };
      const load = inBackground<[string, typeof params], ModelPtr>(
        functions.llama_model_load_from_file as AsyncFunction,
      );
      const model = await withoutLog(() => load(path, params));
      noDevices.fill(0n);
      return model;
    },
    freeVocabulary: inBackground(functions.llama_model_free as AsyncFunction),
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
  if (nativeVersions.some(({ ggml, commit }) => ggml === found && commit === foundCommit)) return;
  const { packageName } = libraries;
  throw nativeVersionMismatch({ path: libraries.base, found, foundCommit, packageName, ...remedyFor(packageName) });
}

/** Calls a function on a thread of libuv. */
const inBackground =
  <Args extends readonly unknown[], Result>(call: AsyncFunction): ((...args: Args) => Promise<Result>) =>
  (...args) =>
    new Promise((resolve, reject) => {
      call.async(...args, (error: unknown, result: Result) => {
        if (error == null) resolve(result);
        else reject(error);
      });
    });

/** Each of koffi's functions. */
interface AsyncFunction {
  async(...args: unknown[]): void;
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
