/**
 * Functions of the C runtime, which every process has. They are not in `ffi.ts`, because they do not need ggml's
 * libraries.
 */
import { readFileSync } from 'node:fs';
import koffi, { type LibraryHandle } from 'koffi';
import { configureKoffi } from '../base/koffi-config.ts';

const PR_SET_PDEATHSIG = 1;
const SIGKILL = 9;
const MFD_CLOEXEC = 1;
const MFD_ALLOW_SEALING = 2;
const F_ADD_SEALS = 1033;
/** F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW and F_SEAL_WRITE. */
const ALL_SEALS = 15;
/** Windows' handle of the current process. */
const CURRENT_PROCESS = -1;

/**
 * Ends the process without waiting for threads. `process.exit` joins Node's threads, so it never returns if one of them
 * is stuck in a system call (a file on a dead NFS mount). Buffered output must be written before.
 */
export function exitAtOnce(code: number): never {
  try {
    if (process.platform === 'win32') {
      const terminate = library('kernel32.dll').func('__stdcall', 'TerminateProcess', 'int', ['intptr_t', 'uint']);
      terminate(CURRENT_PROCESS, code);
    } else {
      library(null).func('_exit', 'void', ['int'])(code);
    }
  } catch {
    // The symbol is missing, for example in a statically linked Node. The process then ends with another exit code.
  }
  process.kill(process.pid, 'SIGKILL');
  throw new Error('unreachable: SIGKILL ends the process');
}

/**
 * On Linux, the kernel kills this process when the thread that started it ends, even if this process is stopped by
 * SIGSTOP. Has no effect on other systems.
 */
export function dieWithParent(): void {
  if (process.platform !== 'linux') return;
  try {
    const prctl = library(null).func('prctl', 'int', ['int', 'ulong', 'ulong', 'ulong', 'ulong']);
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  } catch {
    // Without the symbol, the closed channel ends this process, unless the process is stopped.
  }
}

/**
 * The path of a file in memory with these bytes, which cannot be changed. The file stays open until the process exits,
 * because its path names a descriptor; all threads can open it. Undefined if the system has no such files, or no /proc.
 */
export function sealedFile(name: string, bytes: Uint8Array): string | undefined {
  if (process.platform !== 'linux') return undefined;
  try {
    const libc = library(null);
    const create = libc.func('memfd_create', 'int', ['str', 'uint']);
    const control = libc.func('fcntl', 'int', ['int', 'int', '...']);
    // Deno's descriptors are not those of the system, so `node:fs` cannot use this one.
    const write = libc.func('write', 'intptr_t', ['int', 'void *', 'size_t']);
    const close = libc.func('close', 'int', ['int']);
    const file = create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING) as number;
    if (file < 0) return undefined;
    const path = `/proc/self/fd/${file}`;
    if (writeAll(bytes, (rest) => Number(write(file, rest, rest.length))) && isContent(path, bytes))
      if (control(file, F_ADD_SEALS, 'int', ALL_SEALS) === 0) return path;
    close(file);
  } catch {
    // A symbol is missing.
  }
  return undefined;
}

/** False if memory is short. */
function writeAll(bytes: Uint8Array, write: (rest: Uint8Array) => number): boolean {
  for (let total = 0; total < bytes.length; ) {
    const written = write(bytes.subarray(total));
    if (written <= 0) return false;
    total += written;
  }
  return true;
}

/** False if /proc is not mounted, or is that of another process. */
function isContent(path: string, bytes: Uint8Array): boolean {
  try {
    return readFileSync(path).equals(bytes);
  } catch {
    return false;
  }
}

/** `null`: the libraries with which the process is linked. */
function library(path: string | null): LibraryHandle {
  configureKoffi();
  return koffi.load(path);
}
