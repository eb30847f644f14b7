import koffi, { type LibraryHandle } from 'koffi';
import { type Functions, nullPtr, type RawPtr } from './ffi-table.ts';

export interface NativeLog {
  readonly log: readonly string[];
  /** Without lines while `work` runs. */
  withoutLog<T>(work: () => Promise<T>): Promise<T>;
}

/** Keeps the last lines of the native logs for error messages. They are not printed. */
export function captureNativeLog(functions: Functions, base: LibraryHandle): NativeLog {
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
  const sendTo = (pointer: unknown): void => functions.llama_log_set(Number(pointer) as RawPtr, nullPtr());
  sendTo(callback);
  let silences = 0;
  return {
    log: lines,
    async withoutLog(work) {
      // Without a callback, libllama prints. This function has no effect, and ignores the arguments of a callback.
      if (silences++ === 0) sendTo(base.symbol('ggml_version'));
      try {
        return await work();
      } finally {
        if (--silences === 0) sendTo(callback);
      }
    },
  };
}
