/**
 * The symbols of the C runtime, which every process has. They are not in `ffi.ts` because they work without ggml's
 * libraries.
 */
import koffi, { type LibraryHandle } from 'koffi';
import { configureKoffi } from './koffi-config.ts';

const PR_SET_PDEATHSIG = 1;
const SIGKILL = 9;
/** What Windows calls the current process. */
const CURRENT_PROCESS = -1;

/**
 * Ends the process without waiting for anything. `process.exit` joins Node's threads, so it never returns while one of them
 * is in a system call that does not return (a file on a dead NFS mount). Buffered output must be written before.
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
    // The symbol is missing, for example in a statically linked Node: the exit code is lost, the end is not.
  }
  process.kill(process.pid, 'SIGKILL');
  throw new Error('unreachable: SIGKILL ends the process');
}

/**
 * On Linux, the kernel kills this process when the thread that started it ends, even if this process is stopped by SIGSTOP.
 * Elsewhere nothing happens.
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

/** `null`: what the process itself is linked with. */
function library(path: string | null): LibraryHandle {
  configureKoffi();
  return koffi.load(path);
}
