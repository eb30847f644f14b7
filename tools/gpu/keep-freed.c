/**
 * Keeps small blocks that Mesa's software Vulkan frees. Its version 22.3 counts the references of some blocks of about 500 bytes wrongly: it
 * writes to them after it has freed them, and frees them twice. So processes ended with "double free or corruption" and the like.
 * `software-vulkan` loads this before the C library. The memory is lost until the process ends.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

extern void __libc_free(void *block);

enum { bytes_min = 256, bytes_max = 1024 };

/* What is known of callers: twice the address, plus 1 if it is the driver's. `dladdr` takes as long as a hundred calls of `free`. */
static _Atomic uintptr_t known[4096];

static int is_of_driver(void *caller) {
  const uintptr_t address = (uintptr_t)caller;
  _Atomic uintptr_t *entry = &known[(address ^ address >> 12) % 4096];
  const uintptr_t found = *entry;
  if (found >> 1 == address) return found & 1;
  Dl_info info;
  const int is_driver = dladdr(caller, &info) != 0 && info.dli_fname != NULL && strstr(info.dli_fname, "libvulkan_lvp") != NULL;
  *entry = address << 1 | is_driver;
  return is_driver;
}

void free(void *block) {
  const size_t bytes = block == NULL ? 0 : malloc_usable_size(block);
  if (bytes >= bytes_min && bytes <= bytes_max && is_of_driver(__builtin_return_address(0))) return;
  __libc_free(block);
}
