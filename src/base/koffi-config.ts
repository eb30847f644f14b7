import koffi from 'koffi';

/**
 * koffi runs C functions on its own stacks, of 2 MiB and 128 KiB by default. libllama's pre-tokenizers recurse once per
 * character of a word (360 bytes each were measured), and kernels need the stack of a normal thread.
 */
const stackBytes = { sync_stack_size: 16 << 20, async_stack_size: 4 << 20 };

let isConfigured = false;

/** Call before koffi loads a library in this thread: koffi refuses changes after that. */
export function configureKoffi(): void {
  if (isConfigured) return;
  koffi.config({ ...koffi.config(), ...stackBytes });
  isConfigured = true;
}
