/*
 * Functions of a compiler's library that clang calls for atomic additions on 64-bit ARM with Linux. A process does not have them, and Zig's
 * clang has no way to turn the calls off. The instructions are those of every ARMv8 CPU. Only x15 to x17 may change.
 */
#define ADDITION(name, load, store) \
  __asm__(".globl " name "\n.hidden " name "\n.type " name ", %function\n" name ":\n" \
          "  mov w16, w0\n" \
          "1: " load " w0, [x1]\n" \
          "  add w17, w0, w16\n" \
          "  " store " w15, w17, [x1]\n" \
          "  cbnz w15, 1b\n" \
          "  ret\n")

ADDITION("__aarch64_ldadd4_relax", "ldxr", "stxr");
ADDITION("__aarch64_ldadd4_acq", "ldaxr", "stxr");
ADDITION("__aarch64_ldadd4_rel", "ldxr", "stlxr");
ADDITION("__aarch64_ldadd4_acq_rel", "ldaxr", "stlxr");
