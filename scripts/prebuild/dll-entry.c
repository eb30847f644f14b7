/*
 * The start of the DLLs for Windows. They use nothing of a C library but functions of Windows's own (`ucrtbase.dll`), so they have no start-up
 * code of a C library either. Linking MinGW's would compile it first, which takes minutes.
 */
typedef void (*constructor)(void);

/* From the linker: a first element to skip, the constructors, and a null. */
extern const constructor __CTOR_LIST__[];

int __stdcall DllMainCRTStartup(void *module, unsigned reason, void *reserved) {
  (void)module, (void)reserved;
  const unsigned process_attach = 1;
  if (reason == process_attach)
    for (const constructor *next = __CTOR_LIST__ + 1; *next; next++) (*next)();
  return 1;
}

/* Objects with floating point refer to it. */
int _fltused = 0;

/*
 * Compilers call it for frames of more than a page, with the size in rax. Windows maps a stack page by page: each page must be touched in
 * order. Keeps all registers.
 */
__asm__(".globl ___chkstk_ms\n"
        "___chkstk_ms:\n"
        "  pushq %rcx\n"
        "  pushq %rax\n"
        "  leaq 24(%rsp), %rcx\n"
        "1:\n"
        "  cmpq $0x1000, %rax\n"
        "  jb 2f\n"
        "  subq $0x1000, %rcx\n"
        "  testq %rcx, (%rcx)\n"
        "  subq $0x1000, %rax\n"
        "  jmp 1b\n"
        "2:\n"
        "  subq %rax, %rcx\n"
        "  testq %rcx, (%rcx)\n"
        "  popq %rax\n"
        "  popq %rcx\n"
        "  ret\n");
